// SPDX-License-Identifier: Apache-2.0
// Tables and pictures with labels, and the numbers that classifiers are judged by.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "core/batch_keys.h"
#include "core/thread_pool.h"
#include "data/classification/image_classification_dataset.h"
#include "data/classification/labels.h"
#include "data/classification/metrics.h"
#include "data/classification/text_classification_dataset.h"
#include "data/dataset/data_folder.h"
#include "data/dataset/record_input.h"
#include "data/dataset/subset.h"
#include "data/image/decode.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int64_t>;

class ClassificationTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/classification_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    // 0 [PAD], 1 [UNK], 2 [CLS], 3 [SEP], 4 [MASK], 5 good, 6 bad, 7 film, 8 ##s, 9 a
    Put("tokenizer/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\nfilm\n##s\na\n");
    auto tokenizer = LoadTokenizer(Path("tokenizer"));
    ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
    tokenizer_ = *std::move(tokenizer);
  }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Put(const std::string& name, const std::string& bytes) const {
    fs::create_directories(fs::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }
  StatusOr<std::shared_ptr<const TextClassificationDataset>> Open(
      const std::string& path, TextClassificationOptions options = {}) const {
    if (options.max_length == 0) options.max_length = 16;
    options.cache = Path("cache/" + fs::path(path).stem().string());
    return TextClassificationDataset::Open(path, *tokenizer_, options);
  }
  // The message of what must fail.
  std::string Failure(const std::string& path,
                      const TextClassificationOptions& options = {}) const {
    const auto data = Open(path, options);
    EXPECT_FALSE(data.ok());
    return Message(data.status());
  }

  std::string folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

void ExpectContains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST_F(ClassificationTest, RecordsOfTablesAndJsonLines) {
  const std::string tsv = Put("a.tsv", "\xEF\xBB\xBFtext\tlabel\r\n\"quoted\tyes\r\n\nlast\tno");
  EXPECT_EQ(*ColumnsOf(tsv), (std::vector<std::string>{"text", "label"}));
  std::vector<std::string> seen;
  const auto visit = [&](std::span<const std::string> fields, const std::string& where) {
    seen.push_back(fields[0] + "|" + fields[1] + "|" + where.substr(where.size() - 2));
    return OkStatus();
  };
  ASSERT_TRUE(ForEachRecord(tsv, {"label", "text"}, visit).ok());
  EXPECT_EQ(seen, (std::vector<std::string>{"yes|\"quoted|:2", "no|last|:4"}));
  const std::string lines =
      Put("b.jsonl", "{\"b\": 1.5, \"a\": \"x\"}\n\n{\"a\": true, \"b\": -2}\n");
  EXPECT_EQ(*ColumnsOf(lines), (std::vector<std::string>{"b", "a"}));
  seen.clear();
  ASSERT_TRUE(ForEachRecord(lines, {"a", "b"}, visit).ok());
  EXPECT_EQ(seen, (std::vector<std::string>{"x|1.5|:1", "true|-2|:3"}));
  const auto fails = [&](const std::string& path, const std::vector<std::string>& columns,
                         const std::string& part) {
    const Status status = ForEachRecord(path, columns, visit);
    EXPECT_FALSE(status.ok()) << part;
    ExpectContains(Message(status), part);
  };
  fails(tsv, {"labl", "text"}, "no column 'labl'; did you mean 'label'?; there are: text, label");
  fails(Put("c.tsv", "a\tb\n1\t2\t3\n"), {"a", "b"}, "c.tsv:2: 3 fields, the header has 2");
  fails(Put("d.jsonl", "{\"a\": [1], \"b\": 2}\n"), {"a", "b"}, "d.jsonl:1");
  fails(Put("e.jsonl", "{\"a\": 1"), {"a", "b"}, "e.jsonl:1");
  fails(Put("f.tsv", "a\tb\n\xff\t1\n"), {"a", "b"}, "invalid UTF-8 at byte 4");
  fails(Put("g.txt", "a,b\n"), {"a", "b"}, "g.txt: a table must be .tsv or .csv");
  fails(Put("h.tsv", "a\ta\n1\t2\n"), {"a"}, "column 'a' twice");
  fails(tsv, {"text", "text"}, "column 'text' is asked for twice");
  fails(Path("absent.tsv"), {"a", "b"}, "absent.tsv");
}

TEST(IndexColumnTest, NumbersOfRowsAreNoTexts) {
  for (const char* name : {"", "id", "ID", "Id", "idx", "index", "Index", "guid", "uuid", "UID",
                           "row", "Unnamed: 0", "Unnamed: 0.1", "unnamed: 3", "__index_level_0__",
                           "__index_level_1__", "review_id", "row_idx", "Sample_ID"}) {
    EXPECT_TRUE(IsIndexColumn(name)) << name;
  }
  for (const char* name : {"text", "sentence", "idea", "indexed", "body", "video", "Unnamed", "0",
                           "paid", "title", "rows", "identity"}) {
    EXPECT_FALSE(IsIndexColumn(name)) << name;
  }
}

TEST(LabelNameTest, ALabelIsOneHoweverItIsSpelt) {
  const std::pair<const char*, const char*> same[] = {
      {"1", "1"},       {"1.0", "1"},       {" 1", "1"},        {"1 ", "1"},    {"\t1\r", "1"},
      {"1.", "1"},      {"+1", "1"},        {"1e0", "1"},       {"1E2", "100"}, {"0.0", "0"},
      {"-0.0", "0"},    {"-2.00", "-2"},    {" good ", "good"}, {"a b", "a b"}, {"007", "007"},
      {"0.5", "0.5"},   {"1.0.0", "1.0.0"}, {"1e400", "1e400"}, {"e", "e"},     {"+", "+"},
      {"v1.0", "v1.0"}, {"inf", "inf"},     {"1e300", "1e300"}, {"  ", ""}};
  for (const auto& [text, name] : same) EXPECT_EQ(LabelName(text), name) << text;
  LabelReader reader(/*num_fields=*/1);
  for (const char* text : {"1", "0", "1.0", " 0", "0.0", "1 "}) {
    ASSERT_TRUE(reader.Add(std::vector<std::string>{text}, "x:1").ok());
  }
  LabelColumn labels = std::move(reader).Finish();
  EXPECT_EQ(labels.names, (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(labels.values, (std::vector<double>{1, 0, 1, 0, 0, 1}));
  // A model that an earlier spelling named.
  ASSERT_TRUE(UseNames({"1.0", "0.0"}, &labels).ok());
  EXPECT_EQ(labels.values, (std::vector<double>{0, 1, 0, 1, 1, 0}));
  LabelReader blank(/*num_fields=*/1);
  EXPECT_EQ(Message(blank.Add(std::vector<std::string>{"  "}, "x:2")), "x:2: the label is empty");
  LabelReader answers(/*num_fields=*/2);
  EXPECT_TRUE(answers.Add(std::vector<std::string>{"1.0", " False"}, "x:1").ok());
  EXPECT_FALSE(answers.Add(std::vector<std::string>{"2", "0"}, "x:1").ok());
}

TEST_F(ClassificationTest, RecordsOfCommaSeparatedValuesAndJson) {
  const std::string csv =
      Put("a.csv",
          "\xEF\xBB\xBFtext,\"the label\",n\r\n\"one, \"\"two\"\"\nthree\", a ,1\r\n\n\"\","
          "\"b\",\nlast,c,\xC3\xA4");
  EXPECT_EQ(*ColumnsOf(csv), (std::vector<std::string>{"text", "the label", "n"}));
  std::vector<std::string> seen;
  const auto visit = [&](std::span<const std::string> fields, const std::string& where) {
    seen.push_back(fields[0] + "|" + fields[1] + "|" + fields[2] + "|" +
                   where.substr(where.find_last_of('/') + 1));
    return OkStatus();
  };
  const std::vector<std::string> columns = {"the label", "text", "n"};
  ASSERT_TRUE(ForEachRecord(csv, columns, visit).ok());
  EXPECT_EQ(seen, (std::vector<std::string>{" a |one, \"two\"\nthree|1|a.csv:2", "b|||a.csv:5",
                                            "c|last|\xC3\xA4|a.csv:6"}));
  // Carriage returns alone end lines, too.
  seen.clear();
  ASSERT_TRUE(
      ForEachRecord(Put("cr.csv", "text,the label,n\rone,a,1\r\"two\r2\",b,2\r"), columns, visit)
          .ok());
  EXPECT_EQ(seen, (std::vector<std::string>{"a|one|1|cr.csv:1", "b|two\r2|2|cr.csv:1"}));
  const std::string array =
      Put("b.json",
          " [ {\"text\": \"x\", \"the label\": 2, \"n\": true},\n{\"n\": 1.5, \"text\": "
          "\"y\", \"the label\": \"z\"}]\n");
  EXPECT_EQ(*ColumnsOf(array), (std::vector<std::string>{"text", "the label", "n"}));
  seen.clear();
  ASSERT_TRUE(ForEachRecord(array, columns, visit).ok());
  EXPECT_EQ(seen, (std::vector<std::string>{"2|x|true|b.json[0]", "z|y|1.5|b.json[1]"}));
  const std::string lines = Put("c.json", "{\"text\": 1, \"the label\": 2, \"n\": 3}\n");
  seen.clear();
  ASSERT_TRUE(ForEachRecord(lines, columns, visit).ok());
  EXPECT_EQ(seen, (std::vector<std::string>{"2|1|3|c.json:1"}));
  const auto fails = [&](const std::string& path, const std::string& part) {
    const Status status =
        ForEachRecord(path, {"a", "b"}, [](auto, const auto&) { return OkStatus(); });
    EXPECT_FALSE(status.ok()) << part;
    ExpectContains(Message(status), part);
  };
  fails(Put("d.csv", "a,b\n1,2,3\n"), "d.csv:2: 3 fields, the header has 2");
  fails(Put("e.csv", "a,b\n1,\"2\n3,4\n"), "e.csv:2: ");
  fails(Put("f.csv", "a,b\n1,2\n3,x\"y\"\n"), "f.csv:3: ");
  fails(Put("g.csv", ""), "g.csv: empty");
  // A record begins where its first quote stands.
  fails(Put("j.csv", "a,b\n\"\n1\",2,3\n"), "j.csv:2: 3 fields");
  fails(Put("h.json", "[1]"), "h.json[0]: not a JSON object");
  fails(Put("i.json", "[{\"a\": 1}"), "i.json");
}

TEST_F(ClassificationTest, RowsAreEncodedPaddedAndLabelled) {
  const std::string path =
      Put("train.tsv", "label\tsentence\npos\ta good film\nneg\tbad\npos\tgood good films\n");
  const auto opened = Open(path, {.token_types = true});
  ASSERT_TRUE(opened.ok()) << Message(opened.status());
  const TextClassificationDataset& data = **opened;
  EXPECT_EQ(data.size(), 3);
  EXPECT_EQ(data.labels().names, (std::vector<std::string>{"neg", "pos"}));
  const std::vector<Sample> samples = {{.index = 1}, {.index = 2}, {.index = 1}};
  const auto batch = data.MakeBatch(samples);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->rows, 3);
  EXPECT_EQ(batch->targets, 3);
  EXPECT_EQ(batch->tokens, 18);
  EXPECT_EQ(batch->at(keys::kInputIds).ToVector<int64_t>(),
            (Ids{2, 6, 3, 0, 0, 0, 2, 5, 5, 7, 8, 3, 2, 6, 3, 0, 0, 0}));
  EXPECT_EQ(batch->at(keys::kAttentionMask).ToVector<int64_t>(),
            (Ids{1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0}));
  EXPECT_EQ(batch->at(keys::kTokenTypeIds).ToVector<int64_t>(), Ids(18, 0));
  EXPECT_EQ(batch->at(keys::kLabels).ToVector<int64_t>(), (Ids{0, 1, 0}));
  const std::vector<Sample> outside = {{.index = 3}};
  EXPECT_THROW((void)data.MakeBatch(outside), Error);
  // The model's order of labels; a label that it does not have.
  const auto turned = Open(path, {.label_names = {"pos", "neutral", "neg"}});
  ASSERT_TRUE(turned.ok());
  EXPECT_EQ((*turned)->labels().values, (std::vector<double>{0, 2, 0}));
  ExpectContains(Failure(path, {.label_names = {"poss", "x"}}), "train.tsv:3: unknown label 'neg'");
}

TEST_F(ClassificationTest, PairsHaveTokenTypesAndAreCut) {
  const std::string path =
      Put("pairs.jsonl",
          "{\"a\": \"good good good good\", \"b\": \"bad film\", \"same\": 1}\n"
          "{\"a\": \"a\", \"b\": \"film\", \"same\": 0}\n");
  const auto opened = Open(path, {.text_column = "a",
                                  .text_pair_column = "b",
                                  .label_columns = {"same"},
                                  .max_length = 8,
                                  .token_types = true});
  ASSERT_TRUE(opened.ok()) << Message(opened.status());
  const std::vector<Sample> samples = {{.index = 0}, {.index = 1}};
  const auto batch = (*opened)->MakeBatch(samples);
  EXPECT_EQ(batch->at(keys::kInputIds).ToVector<int64_t>(),
            (Ids{2, 5, 5, 5, 3, 6, 7, 3, 2, 9, 3, 7, 3, 0, 0, 0}));
  EXPECT_EQ(batch->at(keys::kTokenTypeIds).ToVector<int64_t>(),
            (Ids{0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0}));
  EXPECT_EQ(batch->at(keys::kLabels).ToVector<int64_t>(), (Ids{1, 0}));
}

TEST_F(ClassificationTest, NumbersAndSeveralAnswers) {
  const std::string scores = Put("s.tsv", "text\tlabel\ngood\t4.5\nbad\t1\n");
  const auto numbers = Open(scores);
  ASSERT_TRUE(numbers.ok());
  EXPECT_EQ((*numbers)->labels().kind, LabelKind::kNumber);
  const std::vector<Sample> both = {{.index = 0}, {.index = 1}};
  EXPECT_EQ((*numbers)->MakeBatch(both)->at(keys::kLabels).ToVector<float>(),
            (std::vector<float>{4.5F, 1.0F}));
  // Whole numbers are names, unless they are said to be scores.
  const std::string whole = Put("w.tsv", "text\tlabel\ngood\t4\nbad\t1\n");
  EXPECT_EQ((*Open(whole))->labels().kind, LabelKind::kNames);
  EXPECT_EQ((*Open(whole, {.numbers = true}))->MakeBatch(both)->at(keys::kLabels).ToVector<float>(),
            (std::vector<float>{4, 1}));
  ExpectContains(Failure(Put("v.tsv", "text\tlabel\ngood\tfour\n"), {.numbers = true}),
                 "v.tsv:2: 'four' is no number");
  const std::string several = Put("m.tsv", "text\tfunny\tsad\ngood\t1\t0\nbad\ttrue\tfalse\n");
  const auto answers = Open(several, {.label_columns = {"sad", "funny"}});
  ASSERT_TRUE(answers.ok()) << Message(answers.status());
  const Tensor labels = (*answers)->MakeBatch(both)->at(keys::kLabels);
  EXPECT_EQ(labels.shape(), (Shape{2, 2}));
  EXPECT_EQ(labels.ToVector<float>(), (std::vector<float>{0, 1, 0, 1}));
  ExpectContains(Failure(Put("n.tsv", "text\tx\ty\ngood\t1\t2\n"), {.label_columns = {"x", "y"}}),
                 "n.tsv:2: of several labels each must be 0 or 1, not '2'");
  ExpectContains(Failure(Put("e.tsv", "text\tlabel\ngood\t\n")), "e.tsv:2: the label is empty");
  ExpectContains(Failure(Put("none.tsv", "text\tlabel\n")), "no records");
}

TEST_F(ClassificationTest, WholeNumbersSortByValueAndCachesAreReused) {
  const std::string path = Put("w.tsv", "text\tlabel\na\t10\na\t9\na\t-1\n");
  EXPECT_EQ((*Open(path))->labels().names, (std::vector<std::string>{"-1", "9", "10"}));
  const auto made = fs::last_write_time(Path("cache/w.bin"));
  EXPECT_EQ((*Open(path))->size(), 3);
  EXPECT_EQ(fs::last_write_time(Path("cache/w.bin")), made);
  ASSERT_TRUE(Open(path, {.max_length = 3}).ok());
  EXPECT_NE(fs::last_write_time(Path("cache/w.bin")), made);
}

TEST_F(ClassificationTest, ManyRowsKeepTheirOrderOnAnyNumberOfThreads) {
  std::string text = "text\tlabel\n";
  for (int i = 0; i < 10000; ++i) text += i % 3 == 0 ? "bad\tx\n" : "good good\ty\n";
  const std::string path = Put("many.tsv", text);
  const int threads = NumThreads();
  for (const int n : {1, 4}) {
    SetNumThreads(n);
    const auto data = Open(path, {.reuse = false});
    ASSERT_TRUE(data.ok());
    for (int64_t i = 0; i < 10000; i += 997) {
      const std::vector<Sample> sample = {{.index = i}};
      const auto batch = (*data)->MakeBatch(sample);
      EXPECT_EQ(batch->tokens, i % 3 == 0 ? 3 : 4) << i;
      EXPECT_EQ(batch->at(keys::kLabels).ToVector<int64_t>()[0], i % 3 == 0 ? 0 : 1);
    }
  }
  SetNumThreads(threads);
}

TEST_F(ClassificationTest, SubsetsAreSharesOfTheWhole) {
  const std::string path = Put("t.tsv", "text\tlabel\na\t0\na\t1\na\t2\na\t3\na\t4\n");
  const auto all = *Open(path);
  const auto labels = [](const Dataset& data) {
    std::vector<Sample> samples;
    for (int64_t i = 0; i < data.size(); ++i) samples.push_back({.index = i});
    return data.MakeBatch(samples)->at(keys::kLabels).ToVector<int64_t>();
  };
  EXPECT_EQ(labels(Subset(all, 1, 4)), (Ids{1, 2, 3}));
  const KeyedPermutation order(5, 3, 0);
  Ids drawn = labels(Subset(all, 0, 2, order));
  const Ids rest = labels(Subset(all, 2, 5, order));
  drawn.insert(drawn.end(), rest.begin(), rest.end());
  EXPECT_NE(drawn, (Ids{0, 1, 2, 3, 4}));
  std::sort(drawn.begin(), drawn.end());
  EXPECT_EQ(drawn, (Ids{0, 1, 2, 3, 4}));
  EXPECT_THROW(Subset(all, 2, 6), Error);
}

// --- Pictures ------------------------------------------------------------------------------------

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

// Picture i is 4 x 4, its pixels 16 i ... 16 i + 15.
std::string IdxImages(uint32_t count) {
  std::string bytes =
      std::string("\0\0\x08\x03", 4) + BigEndian(count) + BigEndian(4) + BigEndian(4);
  for (uint32_t i = 0; i < 16 * count; ++i) bytes += static_cast<char>(i);
  return bytes;
}
std::string IdxLabels(const std::string& labels) {
  return std::string("\0\0\x08\x01", 4) + BigEndian(static_cast<uint32_t>(labels.size())) + labels;
}

ImageProcessor Processor(int64_t size, int64_t channels) {
  ImageProcessorConfig config;
  config.height = size;
  config.width = size;
  return *ImageProcessor::Create(config, channels, "test");
}

TEST_F(ClassificationTest, IdxFilesAreFoundAndNormalised) {
  Put("idx/train-images-idx3-ubyte", IdxImages(3));
  Put("idx/train-labels-idx1-ubyte", IdxLabels(std::string("\2\0\1", 3)));
  Put("idx/t10k-images-idx3-ubyte", IdxImages(1));
  Put("idx/t10k-labels-idx1-ubyte", IdxLabels(std::string("\1", 1)));
  const auto parts = FindImageParts(Path("idx"));
  ASSERT_TRUE(parts.ok()) << Message(parts.status());
  EXPECT_EQ(parts->train, Path("idx/train-images-idx3-ubyte"));
  EXPECT_EQ(parts->validation, Path("idx/t10k-images-idx3-ubyte"));
  const auto source = *ImageSource::Open(parts->train);
  EXPECT_EQ(source->names(), (std::vector<std::string>{"0", "1", "2"}));
  const auto data = *ImageClassificationDataset::Create(source, Processor(4, 1), {});
  const std::vector<Sample> samples = {{.index = 2}, {.index = 0}};
  const auto batch = data->MakeBatch(samples);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->at(keys::kLabels).ToVector<int64_t>(), (Ids{1, 2}));
  const Tensor& pixels = batch->at(keys::kPixelValues);
  EXPECT_EQ(pixels.shape(), (Shape{2, 1, 4, 4}));
  const std::vector<float> values = pixels.ToVector<float>();
  for (int i = 0; i < 16; ++i) {
    EXPECT_NEAR(values[static_cast<size_t>(i)], (32 + i) / 127.5 - 1, 1e-6);
    EXPECT_NEAR(values[static_cast<size_t>(16 + i)], i / 127.5 - 1, 1e-6);
  }
  // Grey becomes three equal channels.
  const auto colour = *ImageClassificationDataset::Create(source, Processor(4, 3), {});
  const std::vector<float> three =
      colour->MakeBatch(samples)->at(keys::kPixelValues).ToVector<float>();
  EXPECT_EQ(std::vector<float>(three.begin(), three.begin() + 16),
            std::vector<float>(three.begin() + 32, three.begin() + 48));
  Put("bad/train-images-idx3-ubyte", IdxImages(3));
  Put("bad/train-labels-idx1-ubyte", IdxLabels("\1"));
  const auto uneven = ImageSource::Open(Path("bad/train-images-idx3-ubyte"));
  ASSERT_FALSE(uneven.ok());
  ExpectContains(Message(uneven.status()), "not one label for each of the 3 pictures");
}

TEST_F(ClassificationTest, CropsAndMirrorImagesDependOnThePosition) {
  Put("idx/train-images-idx3-ubyte", IdxImages(4));
  Put("idx/train-labels-idx1-ubyte", IdxLabels(std::string(4, '\0')));
  const auto source = *ImageSource::Open(Path("idx/train-images-idx3-ubyte"));
  const auto data = *ImageClassificationDataset::Create(
      source, Processor(4, 1), {.random_crop = true, .random_flip = true, .seed = 3});
  const auto pixels = [&](std::vector<Sample> samples) {
    const Tensor all = data->MakeBatch(samples)->at(keys::kPixelValues);
    const std::vector<float> values = all.ToVector<float>();
    return std::vector<float>(values.end() - 16, values.end());
  };
  const std::vector<float> once = pixels({{.index = 1, .position = 7}});
  EXPECT_EQ(pixels({{.index = 0, .position = 1}, {.index = 1, .position = 7}}), once);
  int different = 0;
  for (int64_t p = 8; p < 40; ++p) different += pixels({{.index = 1, .position = p}}) != once;
  EXPECT_GT(different, 15);
}

TEST_F(ClassificationTest, MirrorImagesAreResizedAndCroppedAsTheFolderSays) {
  Put("idx/train-images-idx3-ubyte", IdxImages(1));
  Put("idx/train-labels-idx1-ubyte", IdxLabels(std::string(1, '\0')));
  const auto source = *ImageSource::Open(Path("idx/train-images-idx3-ubyte"));
  ImageProcessorConfig config;
  config.do_center_crop = true;
  config.crop_height = 2;
  config.crop_width = 2;
  config.do_rescale = false;
  config.do_normalize = false;
  using Pixels = std::vector<float>;
  const auto seen = [&](bool flips) {
    const ImageProcessor processor = *ImageProcessor::Create(config, 1, "test");
    const auto data =
        *ImageClassificationDataset::Create(source, processor, {.random_flip = flips});
    std::set<Pixels> found;
    for (int64_t p = 0; p < 20; ++p) {
      const std::vector<Sample> samples = {{.index = 0, .position = p}};
      found.insert(data->MakeBatch(samples)->at(keys::kPixelValues).ToVector<float>());
    }
    return found;
  };
  config.do_resize = false;
  EXPECT_EQ(seen(false), (std::set<Pixels>{{5, 6, 9, 10}}));
  EXPECT_EQ(seen(true), (std::set<Pixels>{{5, 6, 9, 10}, {6, 5, 10, 9}}));
  config.do_resize = true;
  config.shortest_edge = 8;
  config.resample = Resample::kNearest;
  EXPECT_EQ(seen(true), (std::set<Pixels>{{5, 6, 9, 10}, {6, 5, 10, 9}}));
}

TEST_F(ClassificationTest, PicturesInTables) {
  const std::string kPictures = "data/columns/testdata/pictures";
  const Ids labels = {0, 0, 0, 1, 1, 2};
  const std::vector<std::string> animals = {"ant", "bee", "cat"};
  for (const std::string kind : {".parquet", ".arrow"}) {
    const std::string path = kPictures + kind;
    EXPECT_EQ(FindImageParts(path)->train, path);
    // Names of classes are the file's; texts are classes of their own.
    for (const std::string column : {"", "label", "animal"}) {
      const auto source = ImageSource::Open(path, ImageSource::Labels::kNeeded, {"", column});
      ASSERT_TRUE(source.ok()) << Message(source.status());
      EXPECT_EQ((*source)->labels(), labels);
      EXPECT_EQ((*source)->names(), animals);
      EXPECT_EQ((*source)->NameOf(4), "4.png");
      for (int64_t i = 0; i < 6; ++i) {
        const Image picture = *(*source)->Read(i);
        EXPECT_EQ(picture.width, 4);
        for (int64_t p = 0; p < 16; ++p) {
          EXPECT_EQ(picture.at(p / 4, p % 4, 0), 10 * i + p) << path << " " << i;
        }
      }
    }
    const auto problem = [&](const ImageColumns& columns) {
      return Message(ImageSource::Open(path, ImageSource::Labels::kNeeded, columns).status());
    };
    ExpectContains(problem({"picture", ""}), path + ": no column 'picture' (columns: image: ");
    ExpectContains(problem({"label", ""}), "column 'label' holds no pictures (columns: ");
    ExpectContains(problem({"", "image"}), "column 'image' holds no labels (columns: ");
  }
  Put("set/train.parquet", *ReadFile(kPictures + ".parquet"));
  const std::string split = SplitPath(Path("set"), "train");
  EXPECT_EQ((*ImageSource::Open(FindImageParts(split)->train))->labels(), labels);
  // Files beside the table, and what is missing. Texts are captions unless they are asked for.
  Put("beside/pictures.parquet", *ReadFile(kPictures + "_beside.parquet"));
  Put("beside/beside.png", *ReadFile("data/image/testdata/rgb.png"));
  const auto open = [&](ImageSource::Labels wanted, const std::string& column) {
    return ImageSource::Open(Path("beside/pictures.parquet"), wanted, {"", column});
  };
  using enum ImageSource::Labels;
  ExpectContains(Message(open(kNeeded, "").status()),
                 "several columns may hold labels; label_columns");
  ExpectContains(Message(open(kNeeded, "kind").status()),
                 "pictures.parquet[2]: label -1, which means none");
  ExpectContains(Message(open(kNeeded, "other").status()),
                 "pictures.parquet[1]: there is no label");
  ASSERT_TRUE(open(kOptional, "other").ok());
  EXPECT_FALSE((*open(kOptional, "other"))->has_labels());
  const auto unlabelled = open(kOptional, "kind");
  ASSERT_TRUE(unlabelled.ok()) << Message(unlabelled.status());
  EXPECT_FALSE((*unlabelled)->has_labels());
  EXPECT_EQ((*unlabelled)->Read(0)->pixels, ReadImage("data/image/testdata/rgb.png")->pixels);
  for (const int64_t row : {1, 2}) {
    ExpectContains(Message((*unlabelled)->Read(row).status()),
                   Concat("pictures.parquet[", row, "]: there is no picture"));
  }
  const auto captions = ImageSource::Open("data/columns/testdata/captions.parquet");
  ExpectContains(Message(captions.status()), "no column of labels; label_columns names one");
  EXPECT_EQ((*open(kNeeded, "caption"))->names(), (std::vector<std::string>{"a", "b", "c"}));
  const auto none = ImageSource::Open("data/columns/testdata/tasks.parquet");
  ExpectContains(Message(none.status()), "no column of pictures; image_column names one");
  Put("folder/a/1.png", *ReadFile("data/image/testdata/rgb.png"));
  const auto folder =
      ImageSource::Open(Path("folder"), ImageSource::Labels::kNeeded, {"", "animal"});
  ExpectContains(Message(folder.status()), "label_columns is 'animal', but this is no table");
}

TEST_F(ClassificationTest, FoldersOfClassesAndWhatIsWrongWithThem) {
  const std::string png = *ReadFile("data/image/testdata/rgb.png");
  const std::string jpg = *ReadFile("data/image/testdata/grey.jpg");
  Put("photos/train/cat/1.png", png);
  Put("photos/train/ant/deep/2.JPG", jpg);
  Put("photos/train/ant/1.jpg", jpg);
  Put("photos/train/ant/notes.txt", "not a picture");
  Put("photos/train/.hidden/1.png", png);
  Put("photos/val/cat/9.png", png);
  const auto parts = FindImageParts(Path("photos"));
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ(parts->validation, Path("photos/val"));
  const auto source = *ImageSource::Open(parts->train);
  EXPECT_EQ(source->names(), (std::vector<std::string>{"ant", "cat"}));
  EXPECT_EQ(source->labels(), (Ids{0, 0, 1}));
  // Validation pictures take the training classes' ids.
  const auto held = *ImageClassificationDataset::Create(
      *ImageSource::Open(parts->validation), Processor(8, 3), {.label_names = {"ant", "cat"}});
  EXPECT_EQ(held->labels(), (Ids{1}));
  const std::vector<Sample> first = {{.index = 0}};
  EXPECT_EQ(held->MakeBatch(first)->at(keys::kPixelValues).shape(), (Shape{1, 3, 8, 8}));

  Put("broken/a/1.png", "no picture at all");
  const auto broken =
      *ImageClassificationDataset::Create(*ImageSource::Open(Path("broken")), Processor(8, 3), {});
  const auto batch = broken->MakeBatch(first);
  ASSERT_FALSE(batch.ok());
  ExpectContains(Message(batch.status()), "broken/a/1.png");
  fs::create_directories(Path("empty/a"));
  ExpectContains(Message(ImageSource::Open(Path("empty")).status()), "empty/a: no picture");
  fs::create_directories(Path("nothing"));
  ExpectContains(Message(ImageSource::Open(Path("nothing")).status()), "no class folders");
  ExpectContains(Message(FindImageParts(Path("absent")).status()), "absent");
}

// --- Numbers -------------------------------------------------------------------------------------

// By hand: truths 0 0 1 1 1 2, guesses 0 1 1 1 2 2.
TEST(MetricsTest, ScoresOfThreeLabels) {
  const std::vector<float> logits = {9, 0, 0, 0, 9, 0, 0, 9, 0, 0, 9, 0, 0, 0, 9, 0, 0, 9, 5, 0, 0};
  const Ids labels = {0, 0, 1, 1, 1, 2, -100};
  const std::vector<double> counts = LabelCounts(logits, labels, 3);
  EXPECT_EQ(counts, (std::vector<double>{2, 3, 1, 1, 3, 2, 1, 2, 1}));
  const ClassScores scores = ScoresOfLabels(counts, 3);
  EXPECT_DOUBLE_EQ(scores.accuracy, 4.0 / 6);
  EXPECT_NEAR(scores.f1, (2.0 / 3 + 2.0 / 3 + 2.0 / 3) / 3, 1e-12);
  // Gorodkin's coefficient: (4*6 - (2*1 + 3*3 + 1*2)) / sqrt((36 - 14)(36 - 14)).
  EXPECT_NEAR(scores.matthews, (24.0 - 13) / 22, 1e-12);
}

TEST(MetricsTest, ScoresOfTwoLabels) {
  // Truth 1: three found, one missed; truth 0: two right, four taken for 1.
  const ClassScores scores = ScoresOfLabels(std::vector<double>{6, 4, 3, 7, 2, 3}, 2);
  EXPECT_DOUBLE_EQ(scores.accuracy, 0.5);
  EXPECT_DOUBLE_EQ(scores.f1, 2.0 * 3 / (2 * 3 + 4 + 1));
  EXPECT_NEAR(scores.matthews, (3.0 * 2 - 4 * 1) / std::sqrt(7.0 * 4 * 6 * 3), 1e-12);
  EXPECT_EQ(ScoresOfLabels(std::vector<double>(6, 0.0), 2).accuracy, 0);
}

TEST(MetricsTest, TopCountsNumbersAndAnswers) {
  const std::vector<float> logits = {1, 2, 3, 4, 4, 3, 2, 1, 0, 0, 0, 0};
  EXPECT_EQ(TopCounts(logits, Ids{2, 0, 3}, 4, 2), (std::vector<double>{1, 2, 3}));
  const std::vector<float> x = {1, 2, 3, 5};
  const std::vector<float> y = {2, 1, 4, 6};
  const std::vector<double> sums = MomentCounts(x, y);
  // By hand: covariance 3.4375, variances 2.1875 and 3.6875.
  EXPECT_NEAR(PearsonOfMoments(sums), 2.5625 / std::sqrt(2.1875 * 3.6875), 1e-12);
  EXPECT_DOUBLE_EQ(sums[6], 1 + 1 + 1 + 1);
  EXPECT_EQ(PearsonOfMoments(MomentCounts(x, std::vector<float>(4, 1.0F))), 0);
  EXPECT_EQ(AnswerCounts(std::vector<float>{1, -1, 2, -2}, std::vector<float>{1, 1, 0, 0}),
            (std::vector<double>{2, 4, 1, 1, 1}));
}

TEST(MetricsTest, SpearmanGivesEqualValuesTheMeanOfTheirRanks) {
  EXPECT_DOUBLE_EQ(SpearmanOfPairs(std::vector<double>{1, 1, 2, 8, 3, 27, 9, 729}), 1);
  EXPECT_DOUBLE_EQ(SpearmanOfPairs(std::vector<double>{1, 3, 2, 2, 9, 1}), -1);
  // By hand: ranks 1, 2.5, 2.5, 4, 5 and 2, 2, 4, 2, 5; squared deviations 9.5 and 8, product 5.
  EXPECT_NEAR(SpearmanOfPairs(std::vector<double>{-1, 0, 2, 0, 2, 3, 4, 0, 7, 5}),
              5 / std::sqrt(9.5 * 8), 1e-12);
  EXPECT_EQ(SpearmanOfPairs(std::vector<double>{1, 4, 2, 4}), 0);
  EXPECT_EQ(SpearmanOfPairs(std::vector<double>{1, 4, std::nan(""), 5, 3, 6}), 0);
  EXPECT_EQ(SpearmanOfPairs({}), 0);
}

}  // namespace
}  // namespace tessera::data
