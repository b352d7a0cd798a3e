// How the page of `quench compare` looks: its beginning, up to the title.
#pragma once

namespace quench::cli {

// Nothing is fetched, and the policy says so to the browser.
inline constexpr char kComparePageHead[] = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { color-scheme: light dark; --page: #f4f4f1; --surface: #fff; --ink: #171714; --quiet: #5f5e58;
  --grid: #e4e3dd; --bar: #2a78d6; --worst: #d9480f; --saturation: #6a5acd; --marked: #fdf0e8; }
@media (prefers-color-scheme: dark) {
  :root { --page: #121211; --surface: #1c1c1a; --ink: #f1f0eb; --quiet: #a9a79e;
    --grid: #34342f; --bar: #4a90e2; --worst: #f0763a; --saturation: #9a8ff0; --marked: #33251c; } }
body { margin: 0; background: var(--page); color: var(--ink); font: 14px/1.45 system-ui, sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 24px 20px 48px; }
h1 { font-size: 20px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 15px; margin: 28px 0 6px; }
p { margin: 0 0 8px; color: var(--quiet); }
p, .card { overflow-wrap: anywhere; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(230px, 1fr)); gap: 12px; margin-top: 18px; }
.card, .scroll { background: var(--surface); border: 1px solid var(--grid); border-radius: 8px; }
.card { padding: 12px 14px; color: var(--quiet); font-size: 12.5px; }
.card b { display: block; margin: 2px 0; color: var(--ink); font-size: 25px; font-weight: 600; }
.scroll { max-height: 78vh; overflow: auto; padding-right: 14px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
th { position: sticky; top: 0; background: var(--surface); box-shadow: inset 0 -1px var(--grid); z-index: 1; }
th { padding: 8px 10px 6px; font-weight: 600; text-align: left; vertical-align: bottom; color: var(--quiet); }
td { padding: 2px 10px; }
td.name { overflow-wrap: anywhere; min-width: 140px; }
td.number, th.number { text-align: right; white-space: nowrap; }
td.order { color: var(--quiet); }
.list td { padding: 5px 10px; border-top: 1px solid var(--grid); }
.chart tr { scroll-margin-top: 48px; }
.chart tr:hover td, tr:target td { background-color: var(--marked); }
.plot { width: 34%; min-width: 150px; }
.small { width: 9%; min-width: 90px; }
.chart td.plot, .chart td.small { padding: 0; background-image: linear-gradient(var(--quiet), var(--quiet)),
  linear-gradient(to right, var(--grid) 1px, transparent 1px); background-repeat: no-repeat, repeat-x; }
.chart th.plot, .chart th.small { padding: 8px 0 6px; }
tr.worst .name, tr.worst .sqnr { font-weight: 600; }
tr.worst .sqnr { color: var(--worst); }
svg { display: block; width: 100%; height: 22px; overflow: visible; }
svg.axis { height: 16px; }
svg text { font-size: 11px; font-weight: 400; fill: var(--quiet); }
rect.bar { fill: var(--bar); }
rect.worst { fill: var(--worst); }
rect.equal { fill: var(--bar); opacity: .3; }
rect.broken { fill: none; stroke: var(--worst); stroke-dasharray: 4 3; }
rect.saturation { fill: var(--saturation); }
i { display: inline-block; width: 11px; height: 11px; margin: 0 5px 0 12px; border-radius: 2px; vertical-align: -1px; }
i:first-child { margin-left: 0; }
i.bar { background: var(--bar); } i.worst { background: var(--worst); } i.equal { background: var(--bar); opacity: .3; }
i.broken { border: 1px dashed var(--worst); box-sizing: border-box; }
a { color: inherit; }
@media print { .scroll { max-height: none; } th { position: static; } }
</style>
)";

}  // namespace quench::cli
