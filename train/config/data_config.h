// The part of a run's configuration that says what its data are: which task, which columns, how
// rows are made. See train/task.h; tasks refuse the keys that mean nothing to them.
#ifndef TESSERA_TRAIN_CONFIG_DATA_CONFIG_H_
#define TESSERA_TRAIN_CONFIG_DATA_CONFIG_H_

#include <cstdint>
#include <string>

namespace tessera::train {

struct DataConfig {
  std::string data;       // a file, a directory or an indexed dataset
  std::string tokenizer;  // a folder, "byte" or "char"; empty: the model's own
  std::string val_data;
  double val_fraction = 0.05;
  std::string task;  // empty: as the model and the data say
  bool overwrite_cache = false;

  // Running text.
  std::string json_key = "text";
  bool reset_at_documents = false;
  double mlm_probability = 0.15;  // masked_lm: share of the tokens to guess
  bool whole_word_mask = false;
  double noise_density = 0.15;  // span_corruption: share of the tokens that spans cover
  double mean_noise_span_length = 3;
  double sentence_mask_share = 0;    // blank_infilling: share of rows with whole sentences masked
  double document_mask_share = 0.5;  // ... and of those that continue a document

  // Labelled text and pictures.
  std::string text_column;
  std::string text_pair_column;
  std::string label_columns;  // one, or several with commas between
  std::string cloze_pattern;  // "{text} In one word: [MASK]."
  std::string label_words;    // "negative=bad,positive=good"
  std::string class_weights;  // "balanced", or a number for each label
  bool random_crop = false;
  bool random_flip = false;

  // Sources and targets, prompts and responses.
  std::string target_data;  // beside `data`, line by line
  std::string val_target_data;
  std::string source_column;
  std::string target_column;
  std::string source_prefix;
  bool lower_case = false;
  int64_t max_source_length = 128;
  int64_t max_target_length = 128;
  std::string prompt_column = "prompt";
  std::string response_column = "response";
  std::string input_column;
  std::string history_column;
  bool predict_with_generate = false;
  int64_t num_beams = 1;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_DATA_CONFIG_H_
