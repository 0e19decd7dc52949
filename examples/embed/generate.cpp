// SPDX-License-Identifier: Apache-2.0
// Several texts at once, a context on a thread each: generate MODEL PROMPT...
//
//   c++ -std=c++17 generate.cpp $(pkg-config --cflags --libs tessera) -pthread -o generate
#include <exception>
#include <future>
#include <iostream>
#include <string>
#include <vector>

#include "tessera.hpp"

namespace {

std::string Continue(const tsr::Model& model, const std::string& prompt) {
  auto options = tsr::Options<tsr_generate_options>();
  options.max_new_tokens = 20;
  options.sampling = TSR_SAMPLING_OFF;
  std::string text = prompt;
  tsr::Context context(model);
  context.Generate(prompt, options, [&](const tsr_token& token) {
    text.append(token.text, token.length);
    return true;
  });
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: " << argv[0] << " MODEL PROMPT...\n";
    return 2;
  }
  try {
    const tsr::Model model(argv[1]);
    std::vector<std::future<std::string>> texts;
    for (int i = 2; i < argc; ++i) {
      texts.push_back(std::async(std::launch::async, Continue, std::cref(model), argv[i]));
    }
    for (std::future<std::string>& text : texts) std::cout << text.get() << "\n";
  } catch (const tsr::Failure& failure) {
    std::cerr << "error: " << failure.what() << "\n";
    return 1;
  }
  return 0;
}
