// The groups of layers of each family of config.json files.
#pragma once

#include "calc/config_fields.h"
#include "calc/layers.h"

namespace pagefold::calc {

enum class Windows : uint8_t { none, all, qwen, alternating, every };

struct LayerReader {
  const ConfigFields& f;
  Model& m;                          // gets the groups
  int64_t head_dim, window, period;  // defaults of the family; 0: none

  Status attention(Windows windows) const;
  Status mla() const;
  Status linear() const;
  Status nemotron() const;
  Status llama4() const;
  Status mimo() const;

 private:
  struct Heads {
    int64_t kv = 0, k_dim = 0, v_dim = 0;
  };
  Result<Heads> heads() const;
  Result<std::vector<std::string>> types(Windows windows, int64_t& width) const;
  Result<int64_t> window_width() const;
  Result<std::vector<std::string>> layer_types() const;
  Status share_layers(std::vector<std::string>& types) const;
  Result<int64_t> indexer_layers() const;
};

}  // namespace pagefold::calc
