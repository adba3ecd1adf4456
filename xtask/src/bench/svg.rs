//! A line chart as SVG: a few series over named places on the x axis, a line at 1 where that means something.
//!
//! Left out on purpose: scales other than linear from zero, and anything interactive.

use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// Distinct in hue and in lightness, on white.
const COLOURS: [&str; 7] = [
    "#7f7f7f", "#8c564b", "#d62728", "#ff7f0e", "#9467bd", "#1f77b4", "#2ca02c",
];

pub struct Chart<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    /// Names of the places on the x axis.
    pub places: Vec<String>,
    /// (name, a value per place)
    pub series: Vec<(String, Vec<Option<f64>>)>,
    /// A dashed line at this height.
    pub line_at: Option<f64>,
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A round number at or above `most / 5`, for the grid.
fn step(most: f64) -> f64 {
    let rough = (most / 5.0).max(f64::MIN_POSITIVE);
    let ten = 10f64.powf(rough.log10().floor());
    let of = [1.0, 2.0, 2.5, 5.0, 10.0].map(|m| m * ten);
    *of.iter().find(|s| **s >= rough).unwrap_or(&of[4])
}

impl Chart<'_> {
    pub fn svg(&self) -> String {
        let values = self.series.iter().flat_map(|s| s.1.iter().flatten());
        let most = values.fold(self.line_at.unwrap_or(0.0), |a, b| a.max(*b));
        let step = step(most);
        let top = (most / step).ceil() * step;
        let (wide, high) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
        let x = |i: usize| LEFT + wide * (i as f64 + 0.5) / self.places.len().max(1) as f64;
        let y = |v: f64| TOP + high * (1.0 - v / top.max(f64::MIN_POSITIVE));
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"14\">{}</text>\n",
            escaped(self.title)
        );
        let mut line = |text: String| out.push_str(&(text + "\n"));
        let mut at = 0.0;
        while at <= top + step / 2.0 {
            let (right, here) = (LEFT + wide, y(at));
            line(format!(
                "<line x1=\"{LEFT}\" y1=\"{here:.1}\" x2=\"{right:.1}\" y2=\"{here:.1}\" stroke=\"#dddddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                here + 4.0,
                (at * 1000.0).round() / 1000.0
            ));
            at += step;
        }
        for (i, place) in self.places.iter().enumerate() {
            line(format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x(i),
                HEIGHT - BOTTOM + 18.0,
                escaped(place)
            ));
        }
        line(format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text x=\"16\" y=\"{:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {:.1})\">{}</text>",
            LEFT + wide / 2.0,
            HEIGHT - 12.0,
            escaped(self.x),
            TOP + high / 2.0,
            TOP + high / 2.0,
            escaped(self.y)
        ));
        if let Some(v) = self.line_at {
            line(format!(
                "<line x1=\"{LEFT}\" y1=\"{0:.1}\" x2=\"{1:.1}\" y2=\"{0:.1}\" stroke=\"black\" stroke-dasharray=\"5 4\"/>",
                y(v),
                LEFT + wide
            ));
        }
        for (n, (name, values)) in self.series.iter().enumerate() {
            let colour = COLOURS[n % COLOURS.len()];
            let points: Vec<(f64, f64)> = values
                .iter()
                .enumerate()
                .filter_map(|(i, v)| v.map(|v| (x(i), y(v))))
                .collect();
            let mut path = String::new();
            for (px, py) in &points {
                let _ = write!(path, "{px:.1},{py:.1} ");
            }
            line(format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                path.trim_end()
            ));
            for (px, py) in points {
                line(format!(
                    "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"3\" fill=\"{colour}\"/>"
                ));
            }
            let (from, here) = (WIDTH - RIGHT + 12.0, TOP + 14.0 + 20.0 * n as f64);
            line(format!(
                "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{here:.1}\">{}</text>",
                here - 6.0,
                from + 20.0,
                escaped(name)
            ));
        }
        out + "</svg>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_and_name_is_drawn() {
        let chart = Chart {
            title: "a < b",
            x: "x",
            y: "y",
            places: vec!["1".into(), "2".into()],
            series: vec![
                ("one".into(), vec![Some(0.5), Some(2.0)]),
                ("two".into(), vec![None, Some(1.0)]),
            ],
            line_at: Some(1.0),
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("a &lt; b") && svg.contains(">two<"));
        assert_eq!((step(2.0), step(97.0), step(0.3)), (0.5, 20.0, 0.1));
    }
}
