// SPDX-License-Identifier: Apache-2.0
// `tessera tokenize`: text into the memory-mapped dataset, or into lines of ids.
#include "data/dataset/tokenize.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/output_files.h"
#include "data/chat/chat_format.h"
#include "data/chat/conversation_file.h"
#include "data/dataset/text_input.h"
#include "data/tokenizer/tokenizer.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/settings.h"
#include "tools/text_lines.h"

namespace tessera::tools {
namespace {

constexpr size_t kPrintedAtOnce = 1 << 16;

struct TokenizeFlags {
  std::string tokenizer;
  std::vector<std::string> input;
  std::string chat;
  std::string output;
  std::string json_key = "text";
  bool print_ids = false;
  bool print_text = false;
  bool no_bos = false;
  bool no_eos = false;
};

std::string LineOf(const std::vector<int32_t>& ids) { return absl::StrJoin(ids, " ") + "\n"; }

// One line of ids, separated by blanks, for each line of text.
Status PrintIds(const data::Tokenizer& tokenizer, const std::vector<std::string>& files) {
  std::string out;
  for (const std::string& path : files) {
    TESSERA_RETURN_IF_ERROR(ForEachLine(path, [&](std::string_view line) {
      out += LineOf(tokenizer.Encode(line));
      if (out.size() < kPrintedAtOnce) return OkStatus();
      Status written = WriteOut(out);
      out.clear();
      return written;
    }));
  }
  return WriteOut(out);
}

// A line for each conversation: its text as JSON, or its ids.
Status PrintChats(const TokenizeFlags& flags) {
  if (!flags.input.empty() || !flags.output.empty() || flags.print_ids == flags.print_text) {
    return InvalidArgument("beside --chat give --print-text or --print-ids, and no --input");
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string folder, FolderOrArchive(flags.tokenizer));
  TESSERA_ASSIGN_OR_RETURN(const data::ChatFormat format, data::ChatFormat::OfFolder(folder));
  std::unique_ptr<data::Tokenizer> tokenizer;
  if (flags.print_ids) {
    TESSERA_ASSIGN_OR_RETURN(tokenizer, data::LoadTokenizer(folder));
  }
  return data::ForEachConversation(
      flags.chat, [&](const data::Conversation& chat, const std::string& where) -> Status {
        const auto rendering = format.Render(chat);
        if (!rendering.ok()) return InvalidArgument(where, ": ", Message(rendering.status()));
        if (flags.print_text) return WriteOut(JsonQuoted(rendering->text) + "\n");
        return WriteOut(LineOf(tokenizer->Encode(rendering->text)));
      });
}

// What says how documents are read and joined does nothing where there are none.
Status RefuseForDocuments(const CLI::App& app, const char* beside) {
  for (const char* flag : {"--json-key", "--no-bos", "--no-eos"}) {
    if (app.count(flag) > 0) return InvalidArgument(flag, " does nothing beside ", beside);
  }
  return OkStatus();
}

// Two files are written beside each other, which standard output cannot hold.
Status CheckPrefix(const std::string& prefix) {
  TESSERA_RETURN_IF_ERROR(RefuseStandardOutput("--output", prefix));
  if (!prefix.ends_with('/')) return OkStatus();
  return InvalidArgument("--output ", prefix, ": a name is missing behind the folder, as in ",
                         JoinPath(prefix, "corpus"));
}

Status RunTokenize(const CLI::App& app, const TokenizeFlags& flags) {
  if (!flags.chat.empty()) {
    TESSERA_RETURN_IF_ERROR(RefuseForDocuments(app, "--chat, whose template says where they are"));
    return PrintChats(flags);
  }
  if (flags.print_text) return InvalidArgument("--print-text needs --chat");
  if (flags.input.empty()) return InvalidArgument("give --input FILE or --chat FILE");
  if (flags.print_ids == !flags.output.empty()) {
    return InvalidArgument("give either --output PREFIX or --print-ids");
  }
  if (flags.print_ids) {
    TESSERA_RETURN_IF_ERROR(RefuseForDocuments(app, "--print-ids, which prints lines as they are"));
  }
  if (!flags.print_ids) TESSERA_RETURN_IF_ERROR(CheckPrefix(flags.output));
  std::vector<std::string> reads = flags.input;
  // A dataset may lie in the tokenizer's folder, and be made again.
  if (!PathExists(flags.output + ".idx")) reads.push_back(flags.tokenizer);
  TESSERA_RETURN_IF_ERROR(
      RefuseInputs({flags.output + ".bin", flags.output + ".idx", flags.output + ".json"}, reads));
  TESSERA_ASSIGN_OR_RETURN(const std::string folder, FolderOrArchive(flags.tokenizer));
  const data::TextInputOptions input = {.json_key = flags.json_key};
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<data::Tokenizer> tokenizer,
                           data::MakeTokenizer(folder, flags.input, input));
  if (flags.print_ids) return PrintIds(*tokenizer, flags.input);
  TESSERA_ASSIGN_OR_RETURN(
      const data::TokenizeResult result,
      data::TokenizeToIndexedDataset(
          *tokenizer, flags.input, flags.output,
          {.input = input, .prepend_begin = !flags.no_bos, .append_eos = !flags.no_eos}));
  std::string report =
      Concat(flags.output, ".bin, ", flags.output, ".idx: ", WithThousands(result.num_tokens),
             " tokens in ", WithThousands(result.num_documents), " documents",
             result.reused ? " (up to date already)\n" : "\n");
  if (flags.tokenizer == "char") {
    const std::string folder = flags.output + ".tokenizer";
    TESSERA_RETURN_IF_ERROR(MakeDirectories(folder));
    TESSERA_RETURN_IF_ERROR(tokenizer->Save(folder));
    report += Concat(folder, ": the tokenizer, ", tokenizer->vocab_size(), " ids\n");
  }
  return WriteOut(report);
}

}  // namespace

void AddTokenizeCommand(CLI::App& app, CommandState& state) {
  using F = TokenizeFlags;
  CLI::App* command =
      app.add_subcommand("tokenize", "Turn text into token ids: a dataset file, or printed");
  OptionTable table = OptionTable::Of<F>("Options");
  table
      .Add("tokenizer", &F::tokenizer,
           "a folder (a SentencePiece model, tokenizer.json, vocab.json and merges.txt, or "
           "vocab.txt), a tar archive of one, a GGUF file, byte or char",
           {.type = "DIR"})
      .Add("input", &F::input,
           "files of text or of records (JSON lines, tables, Parquet, Arrow), or directories of "
           "them; "
           "may be given several times",
           {.type = "FILE"})
      .Add("chat", &F::chat,
           "conversations instead, printed as the folder's chat template has them: JSON lines, or "
           "an array, of OpenAI's, TRL's, ShareGPT's or Alpaca's records",
           {.type = "FILE"})
      .Add("output", &F::output, "writes PREFIX.bin and PREFIX.idx", {.type = "PREFIX"})
      .Add("print_ids", &F::print_ids,
           "print one line of ids, separated by blanks, per line of the input files; --input -: "
           "standard input")
      .Add("print_text", &F::print_text,
           "print each conversation of --chat as a JSON string, one per line")
      .Add("json_key", &F::json_key, "member or column of records that holds the text",
           {.type = "KEY"})
      .Add("no_bos", &F::no_bos,
           "no token before each document that the tokenizer has before a text (Llama's <s>)")
      .Add("no_eos", &F::no_eos, "no end-of-text token after each document");
  command->footer(
      "Examples:\n"
      "  tessera tokenize --tokenizer gpt2-folder --input corpus.txt --output data/corpus\n"
      "  tessera tokenize --tokenizer byte --input prompts.txt --print-ids\n"
      "  tessera tokenize --tokenizer llama-folder --chat chats.jsonl --print-text");
  RunWith<F>(command, state, std::move(table), {.required = {"tokenizer"}},
             [](const CLI::App& app, const F& flags) { return RunTokenize(app, flags); });
}

}  // namespace tessera::tools
