// SPDX-License-Identifier: Apache-2.0
#include "train/run/adapter_start.h"

#include <Eigen/QR>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "autograd/autograd.h"
#include "base/error.h"
#include "dist/mesh/unshard.h"
#include "dist/store/parameter_shard.h"
#include "nlohmann/json.hpp"
#include "nn/low_rank.h"
#include "ops/random/random.h"
#include "ops/view/view.h"

namespace tessera::train {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix ToMatrix(const Tensor& t) {
  const Tensor wide = CastCopy(t, DType::kFloat64).ContiguousCopy();
  return Eigen::Map<const Matrix>(wide.data<double>(), t.size(0), t.size(1));
}

Tensor ToTensor(const Matrix& m) {
  const Tensor t = Empty({m.rows(), m.cols()}, DType::kFloat64);
  Eigen::Map<Matrix>(t.data<double>(), m.rows(), m.cols()) = m;
  return t;
}

void CheckRank(const Tensor& weight, int64_t rank) {
  TESSERA_CHECK(weight.ndim() == 2 && rank >= 1 && rank <= std::min(weight.size(0), weight.size(1)),
                "adapter_start", "rank ", rank, " of a weight ", weight);
}

// Signs are a decomposition's to choose: fixed here.
LowRankStart FromSingular(Matrix u, const Eigen::VectorXd& values, Matrix v, double scale) {
  for (Eigen::Index k = 0; k < values.size(); ++k) {
    Eigen::Index largest = 0;
    u.col(k).cwiseAbs().maxCoeff(&largest);
    const double sign = u(largest, k) < 0 ? -1 : 1;
    const double root = sign * std::sqrt(values(k) / scale);
    u.col(k) *= root;
    v.col(k) *= root;
  }
  return {.a = ToTensor(v.transpose()), .b = ToTensor(u)};
}

Matrix OrthonormalColumns(const Matrix& m) {
  const Eigen::HouseholderQR<Matrix> qr(m);
  return qr.householderQ() * Matrix::Identity(m.rows(), m.cols());
}

}  // namespace

LowRankStart PrincipalStart(const Tensor& weight, int64_t rank, double scale) {
  CheckRank(weight, rank);
  const Eigen::BDCSVD<Matrix> svd(ToMatrix(weight), Eigen::ComputeThinU | Eigen::ComputeThinV);
  return FromSingular(svd.matrixU().leftCols(rank), svd.singularValues().head(rank),
                      svd.matrixV().leftCols(rank), scale);
}

LowRankStart PrincipalStart(const Tensor& weight, int64_t rank, double scale, int iterations,
                            const RandomKey& key) {
  CheckRank(weight, rank);
  const Matrix w = ToMatrix(weight);
  const Matrix random = ToMatrix(Randn({weight.size(1), rank}, key));
  Matrix basis = OrthonormalColumns(w * random);
  for (int i = 0; i < iterations; ++i) {
    basis = OrthonormalColumns(w * OrthonormalColumns(w.transpose() * basis));
  }
  const Matrix within = basis.transpose() * w;
  const Eigen::BDCSVD<Matrix> svd(within, Eigen::ComputeThinU | Eigen::ComputeThinV);
  return FromSingular(basis * svd.matrixU(), svd.singularValues(), svd.matrixV(), scale);
}

LowRankStart OrthonormalStart(const Tensor& weight, int64_t rank) {
  CheckRank(weight, rank);
  const Matrix w = ToMatrix(weight);
  const Eigen::HouseholderQR<Matrix> qr(w);
  Matrix q = qr.householderQ() * Matrix::Identity(w.rows(), rank);
  const Matrix upper = qr.matrixQR().triangularView<Eigen::Upper>();
  Matrix r = upper.topRows(rank);
  for (Eigen::Index k = 0; k < rank; ++k) {
    if (r(k, k) >= 0) continue;
    q.col(k) *= -1;
    r.row(k) *= -1;
  }
  return {.a = ToTensor(r), .b = ToTensor(q)};
}

Status StartFromWeights(const std::string& init, uint64_t seed,
                        const models::AttachedAdapter& adapter, models::Model& model) {
  if (model.build().device.is_meta()) return OkStatus();
  const NoGrad no_grad;
  for (const models::AttachedAdapter::Term& term : adapter.terms) {
    const nn::Parameter& weight = *model.FindParameter(term.module + ".weight");
    if (weight.elsewhere) continue;
    const nn::LowRankConfig& config = term.term->config();
    const Shape& shape = weight.placement.global_shape();
    if (config.rank > std::min(shape[0], shape[1])) {
      return InvalidArgument("init_lora_weights is ", init, ", and the rank ", config.rank,
                             " is greater than that of '", weight.name, "' ", shape);
    }
    Tensor whole;
    {
      const dist::GatheredScope gathered({weight.tensor});
      const Tensor found =
          dist::Unshard(weight.tensor.Detach(), weight.placement, model.build().tensor_parallel);
      // What is gathered is gone behind the scope.
      whole = Empty(found.shape(), found.dtype());
      CopyInto(whole, CopyTo(found, Device::Cpu()));
    }
    if (term.term->layout() == LinearLayout::kInOut) whole = Transpose(whole, 0, 1);
    const std::string prefix = "pissa_niter_";
    LowRankStart start;
    if (init == "olora") {
      start = OrthonormalStart(whole, config.rank);
    } else if (init.starts_with(prefix)) {
      start =
          PrincipalStart(whole, config.rank, config.scale, std::atoi(init.c_str() + prefix.size()),
                         NoiseKey(seed, weight.name + ".pissa", 0, 0));
    } else {
      start = PrincipalStart(whole, config.rank, config.scale);
    }
    term.term->StartWith(start.a, start.b);
  }
  return OkStatus();
}

}  // namespace tessera::train
