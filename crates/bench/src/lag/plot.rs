//! The lag over time, drawn: one line per number of readers, the greatest lag of each quarter of a second.

use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 60.0;
const BOTTOM: f64 = 40.0;
const COLOURS: [&str; 6] = [
    "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b", "#111111",
];

/// (name, (seconds, milliseconds)) per line.
pub fn svg(lines: &[(String, &[(f64, f64)])]) -> String {
    let lines: Vec<_> = lines.iter().map(|l| (&l.0, highest(l.1))).collect();
    let all = || lines.iter().flat_map(|l| l.1.iter());
    let seconds = all().map(|p| p.0).fold(1.0, f64::max);
    let top = nice(all().map(|p| p.1).fold(1.0, f64::max));
    let x = |s: f64| LEFT + s / seconds * (WIDTH - LEFT - 20.0);
    let y = |ms: f64| HEIGHT - BOTTOM - ms / top * (HEIGHT - BOTTOM - 30.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    for i in 0..=4 {
        let ms = top * f64::from(i) / 4.0;
        let at = y(ms);
        _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ms} ms</text>",
            WIDTH - 20.0,
            LEFT - 6.0,
            at + 4.0
        );
        let s = seconds * f64::from(i) / 4.0;
        _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{s:.0} s</text>",
            x(s),
            HEIGHT - BOTTOM + 18.0
        );
    }
    for (i, (name, points)) in lines.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let points: Vec<String> = points
            .iter()
            .map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1)))
            .collect();
        _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" points=\"{}\"/>\
             <text x=\"{:.1}\" y=\"18\" fill=\"{colour}\">{name}</text>",
            points.join(" "),
            LEFT + 110.0 * i as f64
        );
    }
    out.push_str("</svg>\n");
    out
}

fn highest(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut out: Vec<(f64, f64)> = Vec::new();
    for &(s, ms) in points {
        let slot = (s * 4.0).floor() / 4.0;
        match out.last_mut() {
            Some(last) if last.0 == slot => last.1 = last.1.max(ms),
            _ => out.push((slot, ms)),
        }
    }
    out
}

/// The next 1, 2, 4 or 10 times a power of ten.
fn nice(most: f64) -> f64 {
    let unit = 10f64.powf(most.log10().floor());
    let factors = [1.0, 2.0, 4.0, 10.0];
    let fits = factors.iter().find(|f| unit * **f >= most);
    unit * fits.unwrap_or(&10.0)
}
