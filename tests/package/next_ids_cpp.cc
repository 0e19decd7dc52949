// SPDX-License-Identifier: Apache-2.0
// What next_ids.c does, in C++17: next_ids_cpp MODEL
#include <cstdio>
#include <tessera.hpp>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const tsr::Model model(argv[1]);
    tsr::Context context(model);
    auto options = tsr::Options<tsr_generate_options>();
    options.max_new_tokens = 3;
    std::printf("72,105");
    context.Generate({72, 105}, options, [](const tsr_token& token) {
      if (token.id >= 0) std::printf(",%lld", static_cast<long long>(token.id));
      return true;
    });
    std::printf("\n");
  } catch (const tsr::Failure& failure) {
    std::fprintf(stderr, "error: %s\n", failure.what());
    return 1;
  }
  return 0;
}
