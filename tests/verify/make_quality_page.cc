// Writes the report page of a model of 62 layers and 256 experts to the file that it is given.

#include <cmath>

#include "support/temp_folder.h"
#include "verify/quality_page.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::vector<blockscale::MatrixQuality> matrices;
  const auto add = [&](const std::string& name, double rmse) {
    matrices.push_back({.name = name + ".weight",
                        .rows = 1536,
                        .columns = 3072,
                        .relative_rmse = rmse,
                        .sqnr_db = blockscale::SqnrDb(rmse),
                        .max_half_steps = 1.0,
                        .zero_rows = 0});
  };
  for (int layer = 0; layer < 62; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    for (int expert = 0; expert < 256; ++expert)
      for (const char* part : {"w1", "w2", "w3"})
        add(prefix + "block_sparse_moe.experts." + std::to_string(expert) + "." + part,
            0.0085 + 0.0006 * std::sin(0.07 * expert + 0.3 * layer) +
                0.000004 * (expert * 37 % 101));
    for (const char* part : {"q_proj", "k_proj", "v_proj", "o_proj"})
      add(prefix + "self_attn." + part, 0.0088 + 0.00001 * layer);
  }
  blockscale::QualityPage page{.title = "A test & its <page>", .matrices = &matrices};
  page.facts = {{"Source", "synthetic"}, {"Matrices", std::to_string(matrices.size())}};
  blockscale::testing::WriteFile(argv[1], blockscale::RenderQualityPage(page));
  return 0;
}
