"""The style sheet: one palette for light and one for dark, system fonts, and charts that take their colours from it.

Every text colour has a contrast of at least 4.5 to what lies behind it, every mark at least 3 (a test computes
them). Blue, orange, teal and purple stay apart for colour-blind eyes, and no figure relies on colour alone.
"""

LIGHT = {
    "page": "#ffffff",
    "panel": "#f5f7f9",
    "text": "#1a1f26",
    "muted": "#545d68",
    "rule": "#d9dee4",
    "c1": "#0b5cad",
    "c2": "#b3450b",
    "c3": "#0a6b5e",
    "c4": "#7a3fa3",
}
DARK = {
    "page": "#11151a",
    "panel": "#191f26",
    "text": "#e4e8ec",
    "muted": "#9ba6b2",
    "rule": "#2f3842",
    "c1": "#7ab7ff",
    "c2": "#ffab6b",
    "c3": "#5bd1ba",
    "c4": "#d3a6ff",
}


def _variables(palette: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in palette.items())


_BODY = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;background:var(--page);color:var(--text);line-height:1.55;
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif}
main{max-width:1000px;margin:0 auto;padding:28px 20px 72px}
h1{font-size:1.15rem;font-weight:600;margin:0;overflow-wrap:anywhere}
h2{font-size:1.45rem;line-height:1.25;font-weight:650;letter-spacing:-.01em;margin:3.2rem 0 .5rem;
padding-top:1.1rem;border-top:1px solid var(--rule)}
h3{font-size:1.05rem;font-weight:650;margin:2rem 0 .4rem;overflow-wrap:anywhere}
p{margin:.5rem 0;max-width:46rem;overflow-wrap:anywhere}
.lede,.note,figcaption .about,.caption{color:var(--muted)}
.note{font-size:.875rem}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;font-size:.84em}
.verdict{margin:1.1rem 0 1.5rem;padding:.1rem 0 .1rem 1.1rem;border-left:4px solid var(--muted)}
.verdict p{max-width:none}
.verdict .sentence{font-size:1.42rem;line-height:1.4;font-weight:500;letter-spacing:-.01em;text-wrap:pretty}
.verdict .reason{font-size:1.02rem;color:var(--muted)}
.verdict.rise{border-color:var(--c3)}.verdict.fall{border-color:var(--c2)}.verdict.control{border-color:var(--c4)}
.banner{margin:.8rem 0;padding:.65rem .95rem;background:var(--panel);border:1px solid var(--rule);
border-left:4px solid var(--c2);border-radius:4px}
.banner p,.banner ul{margin:.15rem 0;max-width:none}.banner ul{padding-left:1.2rem}
.banner.control{border-left-color:var(--c4)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(168px,1fr));gap:12px;margin:1.3rem 0}
.card{background:var(--panel);border-radius:6px;padding:.8rem .95rem}
.card dt{font-size:.82rem;color:var(--muted)}
.card dd{margin:.15rem 0 0;font-size:1.6rem;line-height:1.2;font-weight:600;font-variant-numeric:tabular-nums}
.card dd.more{font-size:.82rem;font-weight:400;color:var(--muted);line-height:1.4}
.scroll{overflow-x:auto;margin:.2rem 0 .9rem;-webkit-overflow-scrolling:touch;
background:linear-gradient(to left,var(--page) 40%,transparent) right/48px 100% no-repeat local,
linear-gradient(to left,var(--rule),transparent) right/12px 100% no-repeat scroll}
.scroll:focus-visible,summary:focus-visible,a:focus-visible{outline:2px solid var(--c1);outline-offset:2px}
table{border-collapse:separate;border-spacing:0;width:100%;font-size:.875rem;font-variant-numeric:tabular-nums}
.caption{font-size:.875rem;margin:1.5rem 0 0}
th,td{padding:.36rem .5rem;text-align:left;vertical-align:baseline;border-bottom:1px solid var(--rule);
white-space:nowrap}
thead th{font-weight:600;border-bottom:1px solid var(--muted);vertical-align:bottom}
tbody th{font-weight:400;position:sticky;left:0;background:var(--page)}
tbody th.long{white-space:normal;min-width:14rem;max-width:22rem;overflow-wrap:anywhere}
thead th:first-child{position:sticky;left:0;background:var(--page)}
th:first-child{padding-left:0}
.num{text-align:right}
td b{font-weight:600}
.ci{color:var(--muted);font-size:.93em}
tr.reference th,tr.reference td{color:var(--muted)}
tr.reference td b{font-weight:400}
figure{margin:1.2rem 0;min-width:0}
figcaption{font-size:.9rem;line-height:1.45;margin-bottom:.35rem;max-width:46rem}
figcaption b{font-weight:600}
.ending{float:right;padding-left:.8em;font-size:.85rem;font-variant-numeric:tabular-nums;color:var(--muted)}
.grid3 figure{display:flex;flex-direction:column;justify-content:space-between}
.grid3 .about{display:block;font-size:.82rem}
svg{display:block;width:100%;height:auto;overflow:visible}
.grid2{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,400px),1fr));gap:4px 36px}
.grid3{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,270px),1fr));gap:0 28px}
.grid3 figure{margin:.7rem 0}
.narrow{display:none}
svg text{font-family:inherit;font-size:12px;fill:var(--text);font-variant-numeric:tabular-nums}
svg .tick{fill:var(--muted);font-size:11.5px}
svg .strong{font-weight:600}
svg .grid{stroke:var(--rule);stroke-width:1}
svg .axis{stroke:var(--muted);stroke-width:1}
svg .level{stroke-width:1.2;stroke-dasharray:5 4}
svg path{fill:none;stroke-linecap:round;stroke-linejoin:round}
svg .line{stroke-width:2}
svg .thin{stroke-width:1.2;opacity:.55}
svg .raw{stroke-width:3.2;opacity:.36}
svg .bar{stroke-width:1.8}
svg .band{stroke:none;opacity:.16}
svg .mark{stroke-width:1.6}
svg .mark.hollow{fill:var(--page)!important}
.key{white-space:nowrap;margin-right:.5em}
.key svg{display:inline-block;width:.85em;height:.85em;margin-right:.25em;vertical-align:-.06em}
.sample{border:1px solid var(--rule);border-radius:6px;padding:.75rem 1rem 1rem;margin:1rem 0}
.sample h3{margin:0;font-size:.98rem}
.sample .why{font-size:.875rem;color:var(--muted);margin:.1rem 0 .3rem}
.sides{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:14px 22px}
.sides>div{min-width:0}
.side{font-size:.875rem;display:flex;flex-wrap:wrap;gap:.2rem .7rem;align-items:baseline}
.side b{font-weight:600}
.side .how{color:var(--muted);overflow-wrap:anywhere}
.chips{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,10.5rem),1fr));gap:.2rem 1.2rem;
margin:.35rem 0;padding:0;list-style:none;font-size:.8rem;
font-variant-numeric:tabular-nums}
.chips li{display:flex;align-items:center;gap:.4rem;min-width:0}
.chips b{flex:1;font-weight:400;overflow-wrap:anywhere}
.chips i{display:inline-block;width:44px;height:7px;border-radius:2px;background:var(--rule);overflow:hidden}
.chips i span{display:block;height:100%;background:var(--c1)}
.sample .scroll td,.sample .scroll tbody th{white-space:normal;overflow-wrap:anywhere}
.strip{display:flex;gap:12px;overflow-x:auto;padding:.3rem 0 .5rem;align-items:flex-start}
.strip figure{flex:0 0 auto;width:min(260px,70vw);margin:0}
.strip img{display:block;width:100%;height:auto;border:1px solid var(--rule);border-radius:4px}
.strip figcaption{font-size:.8rem;color:var(--muted);margin:.3rem 0 0;overflow-wrap:anywhere}
pre{margin:.4rem 0;padding:.65rem .8rem;background:var(--panel);border-radius:4px;white-space:pre-wrap;
overflow-wrap:anywhere;line-height:1.5;max-height:26rem;overflow-y:auto;unicode-bidi:isolate}
details{margin:.45rem 0}
.folded{display:flex;flex-wrap:wrap;gap:0 1.6rem;margin-bottom:.3rem}
.folded details{margin:.1rem 0}
.folded details[open]{flex-basis:100%;min-width:0}
summary{cursor:pointer;color:var(--c1);font-size:.9rem;padding:.15rem 0}
a{color:var(--c1)}
nav{display:none}
dl.facts{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1.1rem;font-size:.9rem;margin:.6rem 0}
dl.facts dt{color:var(--muted)}dl.facts dd{margin:0;overflow-wrap:anywhere}
@media(max-width:640px){
main{padding:18px 16px 48px}
.verdict .sentence{font-size:1.16rem}
.wide{display:none}.narrow{display:block}
.card:last-child:nth-child(odd){grid-column:1/-1}
th,td{padding:.36rem .5rem}
tbody th,tbody th.long{white-space:normal;max-width:8.2rem;min-width:5.6rem;overflow-wrap:anywhere}
dl.facts{grid-template-columns:1fr}dl.facts dd{margin-bottom:.4rem}
}
@media(min-width:1300px){
nav{display:block;position:fixed;top:28px;left:max(20px,calc(50% - 680px));width:164px;font-size:.85rem}
nav a{display:block;padding:.22rem 0;color:var(--muted);text-decoration:none}
nav a:hover{color:var(--c1);text-decoration:underline}
}
@media print{
body{font-size:10pt}.verdict .sentence{font-size:1.2rem}main{max-width:none;padding:0}nav{display:none}
.wide{display:block}.narrow{display:none}
figure,.sample,.card,tr{break-inside:avoid}h2,h3{break-after:avoid}
.cards{grid-template-columns:repeat(5,1fr);gap:6px}.card{padding:.5rem}.card dd{font-size:1.2rem}
.grid2{grid-template-columns:1fr 1fr}.grid3{grid-template-columns:1fr 1fr 1fr}
.strip{flex-wrap:wrap;overflow:visible}.strip figure{width:30%}
pre{max-height:none}.scroll{overflow:visible;background:none}table{font-size:7.2pt}th,td{padding:.15rem .3rem}
}
"""


def _series() -> str:
    """Each colour as text, line, mark and area."""
    return "".join(
        f"svg .{name}.line,svg .{name}.thin,svg .{name}.raw,svg .{name}.bar,svg .{name}.level{{stroke:var(--{name})}}"
        f"svg .{name}.mark{{fill:var(--{name});stroke:var(--{name})}}"
        f"svg .{name}.band,svg .{name}.fill,svg .{name}.label{{fill:var(--{name})}}"
        for name in ("c1", "c2", "c3", "c4", "muted")
    )


PALETTE = (
    f":root{{color-scheme:light dark;{_variables(LIGHT)}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}"
)
"""The colours as variables, for whoever shows something in the same style."""
CSS = PALETTE + "".join(line.strip() for line in _BODY.splitlines()) + _series()
