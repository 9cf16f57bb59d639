#include <fmt/core.h>

#include "report/report.h"

namespace pagefold::report {
namespace {

constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--ground:#fff;--ink:#1b1f24;--soft:#5b6570;--rule:#d5dae0;
--c0:#0b62c4;--c1:#c2410c;--c2:#15803d;--c3:#9333ea;--c4:#b91c5c;--c5:#0e7490;--c6:#854d0e;--c7:#475569}
@media (prefers-color-scheme:dark){:root{--ground:#14171b;--ink:#e6e9ed;--soft:#9aa5b1;--rule:#343b44;
--c0:#6cb0ff;--c1:#fb923c;--c2:#5fd389;--c3:#c99bff;--c4:#ff85b0;--c5:#56cfe1;--c6:#e0b252;--c7:#a9b4c2}}
body{margin:0 auto;padding:1.5rem 1rem 4rem;max-width:62rem;background:var(--ground);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;line-height:1.2}h2{font-size:1.2rem;margin-top:2.2rem}
p{max-width:46rem}pre{overflow-x:auto;padding:.7rem;border:1px solid var(--rule);border-radius:6px;font-size:.85rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .7rem;border-bottom:1px solid var(--rule);text-align:right;white-space:nowrap}
th{font-weight:600;color:var(--soft)}.t{text-align:left}
figure{margin:1.5rem 0}figcaption{font-weight:600;margin-bottom:.3rem}svg{width:100%;height:auto;max-width:52rem;display:block}
svg text{fill:var(--soft);font:12px system-ui,sans-serif}svg .name{fill:var(--ink)}
.grid{stroke:var(--rule);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}
)";

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') {
      out += c;
    }
  }
  return out;
}

void Page::heading(std::string_view text) { body_ += fmt::format("<h2>{}</h2>\n", escaped(text)); }
void Page::paragraph(std::string_view text) { body_ += fmt::format("<p>{}</p>\n", escaped(text)); }
void Page::code(std::string_view text) {
  body_ += fmt::format("<pre><code>{}</code></pre>\n", escaped(text));
}
void Page::plot(const Plot& plot) {
  body_ += fmt::format("<figure><figcaption>{}</figcaption>\n{}</figure>\n", escaped(plot.title),
                       svg(plot));
}

void Page::table(const Table& table) {
  const auto cells = [&](const std::vector<std::string>& row, std::string_view tag) {
    body_ += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      body_ += fmt::format("<{}{}>{}</{}>", tag, i < table.text_columns ? " class=\"t\"" : "",
                           escaped(row[i]), tag);
    }
    body_ += "</tr>\n";
  };
  body_ += "<div class=\"scroll\"><table>\n<thead>";
  cells(table.head, "th");
  body_ += "</thead>\n<tbody>\n";
  for (const auto& row : table.rows) cells(row, "td");
  body_ += "</tbody></table></div>\n";
}

std::string Page::html() const {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<title>{0}</title><style>{1}</style></head>\n<body><h1>{0}</h1>\n{2}</body></html>\n",
      escaped(title_), kStyle, body_);
}

}  // namespace pagefold::report
