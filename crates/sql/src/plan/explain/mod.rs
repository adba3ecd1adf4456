//! EXPLAIN: the physical plan in PostgreSQL's form, as text or as JSON.
//!
//! `walk` says what each node is, `estimate` what it costs, `shown` writes both. Nodes that PostgreSQL has carry its names and its JSON keys.
//! Canon's own are `Catalog Scan` (a catalog relation, which makes its rows when read), `Filter`, `With`, and `Hash Lookup` (the rows of a
//! subquery by a key that the outer row gives).
//!
//! Left out on purpose: VERBOSE, BUFFERS, WAL and SETTINGS are accepted and add nothing; the formats XML and YAML are refused.

mod estimate;
mod shown;
mod stats;
mod walk;

use super::node::{Explain, Plan};
use shown::{Figures, Object};
use stats::millis;
use std::time::Duration;
use txn::TableHandle;

pub(crate) use stats::NodeStats;
pub(crate) use walk::count_nodes;

/// What there is to show.
pub(crate) struct Explained<'a> {
    pub plan: &'a Plan,
    pub options: Explain,
    /// Rows of a table.
    pub rows: &'a dyn Fn(&TableHandle) -> u64,
    /// Counters of the nodes, after a run.
    pub actual: Option<&'a [NodeStats]>,
    /// How long planning took, and the run.
    pub planning: Duration,
    pub execution: Option<Duration>,
}

impl Explained<'_> {
    fn figures(&self) -> Figures {
        Figures {
            costs: self.options.costs,
            timing: self.options.timing,
        }
    }

    /// Times to show, each with its name.
    fn times(&self) -> Vec<(&'static str, f64)> {
        let mut times = vec![];
        if self.options.summary {
            times.push(("Planning Time", millis(self.planning)));
            let execution = self.execution.map(millis);
            times.extend(execution.map(|t| ("Execution Time", t)));
        }
        times
    }

    /// The answer as lines of text.
    pub fn text(&self) -> Vec<String> {
        let mut lines = Vec::new();
        walk::tree(self.plan, self.actual, self.rows).lines(0, self.figures(), &mut lines);
        for (name, t) in self.times() {
            lines.push(format!("{name}: {t:.3} ms"));
        }
        lines
    }

    /// The answer as a JSON document.
    pub fn json(&self) -> String {
        let mut out = String::from("[\n");
        let mut plan = String::new();
        walk::tree(self.plan, self.actual, self.rows).json(None, self.figures(), 2, &mut plan);
        let mut o = Object::open(1, &mut out);
        o.plain("Plan", plan.trim_start());
        for (name, t) in self.times() {
            o.plain(name, &format!("{t:.3}"));
            if name == "Planning Time" && self.execution.is_some() {
                o.plain("Triggers", "[\n    ]");
            }
        }
        o.close();
        out.push_str("\n]");
        out
    }
}
