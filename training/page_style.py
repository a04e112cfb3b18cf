"""The page's style sheet.

Colours are of the Okabe-Ito set, which colour-blind readers tell apart: blue for what
we did, vermillion for harm, orange where Helion has no rule, grey for what is only
known. Both schemes of a browser, light and dark, are served.
"""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--paper:#fdfdfc;--card:#fff;--ink:#1b1f24;--soft:#59636e;
--line:#dfe3e8;--faint:#eff1f4;--ours:#0072b2;--harm:#c24a00;--none:#b87700;
--known:#7b8794;--heat:0,114,178}
@media (prefers-color-scheme:dark){:root{--paper:#14171a;--card:#1c2024;--ink:#e7eaed;
--soft:#a2acb6;--line:#343b42;--faint:#262b30;--ours:#56b4e9;--harm:#ff8a4c;
--none:#e69f00;--known:#8f9ba7;--heat:86,180,233}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,
sans-serif;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 4px;letter-spacing:-.01em}
h2{font-size:1.2rem;margin:44px 0 4px}
h3{font-size:1rem;margin:22px 0 6px;color:var(--soft);font-weight:600}
p{margin:4px 0 14px;max-width:72ch}
.lead,.note,small{color:var(--soft)}
small{font-size:.8rem}
code{font:.85em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,290px),1fr));
gap:14px;margin:20px 0 8px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:16px 18px}
.tile .big{font-size:2.5rem;line-height:1.1;font-weight:650;letter-spacing:-.02em;
color:var(--ours)}
.tile .of{font-size:.95rem;color:var(--soft)}
.tile dl{display:grid;grid-template-columns:1fr auto;gap:2px 12px;margin:12px 0 0;
font-size:.9rem}
.tile dt{color:var(--soft)}.tile dd{margin:0;text-align:right}
.whole{white-space:nowrap}
.bad{color:var(--harm);font-weight:600}
.bars{background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:8px 16px 12px}
.bar{display:grid;grid-template-columns:minmax(120px,210px) 1fr 128px;gap:0 14px;
align-items:center;padding:5px 0}
.bar+.bar{border-top:1px solid var(--faint)}
.bar .name small,.bar .value small,.bar .value b{display:block;line-height:1.3}
.bar .value{text-align:right;font-weight:600}
.bar .value small{font-weight:400}
.bar .harm{font-size:.8rem;color:var(--harm)}
.track{position:relative;height:28px}
.scale .track{grid-column:2;height:20px}
.scale span{position:absolute;transform:translateX(-50%);font-size:.78rem;
color:var(--soft)}
.track i{position:absolute;display:block}
.grid{top:-8px;bottom:-8px;width:1px;background:var(--faint)}
.grid.one{background:var(--known)}
.fill{top:7px;bottom:7px;background:var(--ours);border-radius:2px;min-width:2px}
.fill.loss{background:var(--harm)}
.whisker{top:13px;height:2px;background:var(--ink)}
.whisker::before,.whisker::after{content:"";position:absolute;top:-4px;height:10px;
width:2px;background:var(--ink)}
.whisker::after{right:0}
.best{top:9px;width:10px;height:10px;margin-left:-5px;border:2px solid var(--known);
background:var(--card);transform:rotate(45deg)}
.scatter{display:block;width:100%;height:auto;background:var(--card);
border:1px solid var(--line);border-radius:10px}
.scatter text{font-size:12.5px;fill:var(--soft)}
.scatter .end{text-anchor:end}.scatter .middle{text-anchor:middle}
.scatter .grid{stroke:var(--line);stroke-width:1}
.scatter .one{stroke:var(--known);stroke-width:1.4}
.scatter .stem{stroke:var(--known);stroke-width:1;opacity:.35}
.scatter .known{fill:none;stroke:var(--known);stroke-width:1.1;opacity:.8}
.scatter .pick{fill:var(--ours);opacity:.85}
.scatter .kept{fill:var(--known);opacity:.75}
.scatter .norule{fill:var(--none);opacity:.9}
.scatter .harm{fill:var(--harm);stroke:var(--card);stroke-width:.8}
.scatter g:hover .stem{opacity:1;stroke-width:2}
.narrow{display:none!important}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:8px 0 12px;font-size:.88rem;
color:var(--soft);padding:0;list-style:none}
.reading{border-left:3px solid var(--known);padding-left:12px}
.legend svg{width:14px;height:14px;vertical-align:-2px;margin-right:5px}
details{background:var(--card);border:1px solid var(--line);border-radius:10px;
margin:10px 0;padding:0 16px}
summary{cursor:pointer;padding:12px 0;display:flex;flex-wrap:wrap;gap:2px 14px;
align-items:baseline}
summary::before{content:"▸";color:var(--soft)}
details[open]>summary::before{content:"▾"}
summary strong{font-weight:650}
summary .right{margin-left:auto;font-weight:600}
.body{padding:0 0 14px}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));
gap:8px 32px}
table{border-collapse:collapse;width:100%;font-size:.88rem}
th{font-weight:600;color:var(--soft);text-align:left}
td,th{overflow-wrap:break-word}td code{overflow-wrap:anywhere}
th,td{padding:4px 8px 4px 0;border-bottom:1px solid var(--faint);vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap}
.map{border-collapse:separate;border-spacing:2px}
.map th,.map td{border:0;padding:3px 4px}
.map td{text-align:center;border-radius:3px;min-width:34px}
.map th.up{vertical-align:bottom;text-align:center}
.map th.up span{writing-mode:vertical-rl;transform:rotate(180deg);display:inline-block}
.map .sum{color:var(--soft)}
.map th[scope=row]{font-weight:400;color:var(--ink)}
footer{margin-top:48px;padding-top:14px;border-top:1px solid var(--line);
font-size:.85rem;color:var(--soft)}
footer dl{display:grid;grid-template-columns:minmax(110px,180px) 1fr;gap:2px 14px;
margin:0}
footer dd{margin:0}
@media (max-width:640px){main{padding:18px 12px 40px}h1{font-size:1.4rem}
.tile .big{font-size:2.1rem}
.wide{display:none!important}.narrow{display:block!important}
.bars{padding:6px 10px 10px}
.bar{grid-template-columns:1fr auto;gap:0 10px}
.bar .track{grid-column:1/-1;grid-row:2}.bar .value{grid-column:2;grid-row:1}
.bar .value small,.bar .value b{display:inline;margin-left:6px}
.scale .track{grid-row:1}
details{padding:0 12px}summary .right{margin-left:0}
.map{font-size:.78rem;border-spacing:1px}.map td{min-width:22px}
.map th,.map td{padding:3px 2px}
.map .sum{display:none}.map th[scope=row]{overflow-wrap:anywhere}
footer dl{grid-template-columns:1fr}footer dd{margin-bottom:6px}}
@media print{details{break-inside:avoid}body{background:#fff}}
"""
