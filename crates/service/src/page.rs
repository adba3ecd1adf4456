//! A page of metrics in Prometheus' text format, written one metric after another.
//!
//! Left out on purpose: a registry. The numbers live where they are counted, and a page is written when it is asked for.

use std::fmt::{Display, Write};

/// The page so far.
#[derive(Default)]
pub struct Page(pub String);

impl Page {
    /// What a metric is; its values follow. `kind`: counter, gauge or summary.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub fn counter(&mut self, name: &str, help: &str, v: impl Display) {
        self.head(name, "counter", help);
        _ = writeln!(self.0, "{name} {v}");
    }

    pub fn gauge(&mut self, name: &str, help: &str, v: impl Display) {
        self.head(name, "gauge", help);
        _ = writeln!(self.0, "{name} {v}");
    }

    /// One counter for each value of a label.
    pub fn counters<V: Display, N: Display>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        all: impl IntoIterator<Item = (V, N)>,
    ) {
        self.head(name, "counter", help);
        self.values(name, label, all);
    }

    /// One gauge for each value of a label.
    pub fn gauges<V: Display, N: Display>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        all: impl IntoIterator<Item = (V, N)>,
    ) {
        self.head(name, "gauge", help);
        self.values(name, label, all);
    }

    fn values<V: Display, N: Display>(
        &mut self,
        name: &str,
        label: &str,
        all: impl IntoIterator<Item = (V, N)>,
    ) {
        for (value, n) in all {
            _ = writeln!(self.0, "{name}{{{label}=\"{value}\"}} {n}");
        }
    }

    /// A sum of times with its count.
    pub fn times(&mut self, name: &str, help: &str, count: u64, seconds: f64) {
        self.head(name, "summary", help);
        _ = writeln!(self.0, "{name}_sum {seconds}\n{name}_count {count}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_what_prometheus_reads() {
        let mut p = Page::default();
        p.counter("a_total", "Counted.", 1);
        p.gauges("b", "By node.", "node", [("x:1", 2), ("y:2", 3)]);
        p.times("c_seconds", "Waited.", 4, 0.5);
        let want = "# HELP a_total Counted.\n# TYPE a_total counter\na_total 1\n\
            # HELP b By node.\n# TYPE b gauge\nb{node=\"x:1\"} 2\nb{node=\"y:2\"} 3\n\
            # HELP c_seconds Waited.\n# TYPE c_seconds summary\nc_seconds_sum 0.5\nc_seconds_count 4\n";
        assert_eq!(p.0, want);
    }
}
