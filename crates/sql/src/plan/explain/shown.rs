//! A plan as EXPLAIN writes it: lines of text, or a JSON document with PostgreSQL's keys.

use super::estimate::Estimate;
use super::stats::{NodeStats, millis};
use std::fmt::Write;

/// What is said of a node.
pub(super) enum Fact {
    Text(String),
    List(Vec<String>),
    Flag(bool),
}

impl From<String> for Fact {
    fn from(s: String) -> Fact {
        Fact::Text(s)
    }
}

impl From<&str> for Fact {
    fn from(s: &str) -> Fact {
        Fact::Text(s.to_owned())
    }
}

/// A key with what is said.
pub(super) type Said = (&'static str, Fact);

/// A node as EXPLAIN shows it.
pub(super) struct Shown {
    /// The node's type in JSON.
    pub kind: &'static str,
    /// The first line of text, without figures.
    pub title: String,
    /// Said in JSON alone: the text has it in the title.
    pub facts: Vec<Said>,
    /// Said in both.
    pub details: Vec<Said>,
    pub estimate: Estimate,
    pub actual: Option<NodeStats>,
    /// `SubPlan 1` and such, before the node.
    pub label: Option<String>,
    pub children: Vec<Shown>,
}

/// What is shown beside the tree.
#[derive(Clone, Copy)]
pub(super) struct Figures {
    pub costs: bool,
    pub timing: bool,
}

impl Shown {
    /// The node and all below it as lines.
    pub fn lines(&self, depth: usize, f: Figures, out: &mut Vec<String>) {
        let (mut indent, arrow) = match depth {
            0 => (0, ""),
            d => (d * 6 - 4, "->  "),
        };
        if let Some(l) = &self.label {
            out.push(format!("{:indent$}{l}", ""));
            indent += 2;
        }
        let mut line = format!("{:indent$}{arrow}{}", "", self.title);
        self.figures(f, &mut line);
        out.push(line);
        let inner = indent + if depth == 0 { 2 } else { 6 };
        for (k, v) in &self.details {
            let v = match v {
                Fact::Text(t) => t.clone(),
                Fact::List(l) => l.join(", "),
                Fact::Flag(b) => b.to_string(),
            };
            out.push(format!("{:inner$}{k}: {v}", ""));
        }
        let next = match self.label {
            Some(_) => depth + 1,
            None => depth,
        };
        for c in &self.children {
            c.lines(next + 1, f, out);
        }
    }

    fn figures(&self, f: Figures, line: &mut String) {
        let e = &self.estimate;
        let costs = format!(
            "  (cost={:.2}..{:.2} rows={:.0} width={})",
            e.startup, e.total, e.rows, e.width
        );
        if f.costs {
            line.push_str(&costs);
        }
        let Some(a) = &self.actual else { return };
        if a.loops == 0 {
            line.push_str(" (never executed)");
            return;
        }
        let per = |x: f64| x / a.loops as f64;
        line.push_str(" (actual ");
        if f.timing {
            let (first, all) = (per(millis(a.startup)), per(millis(a.time)));
            write!(line, "time={first:.3}..{all:.3} ").expect("to a string");
        }
        let rows = per(a.rows as f64);
        write!(line, "rows={rows:.0} loops={})", a.loops).expect("to a string");
    }

    /// The node and all below it as a JSON object, at this depth of indentation.
    pub fn json(&self, relation: Option<&str>, f: Figures, depth: usize, out: &mut String) {
        let mut o = Object::open(depth, out);
        o.text("Node Type", self.kind);
        if let Some(r) = relation {
            o.text("Parent Relationship", r);
        }
        if let Some(l) = &self.label {
            o.text("Subplan Name", l);
        }
        o.plain("Parallel Aware", "false");
        o.plain("Async Capable", "false");
        self.facts.iter().for_each(|(k, v)| o.fact(k, v));
        if f.costs {
            let e = &self.estimate;
            o.plain("Startup Cost", &format!("{:.2}", e.startup));
            o.plain("Total Cost", &format!("{:.2}", e.total));
            o.plain("Plan Rows", &format!("{:.0}", e.rows));
            o.plain("Plan Width", &e.width.to_string());
        }
        if let Some(a) = &self.actual {
            let per = |x: f64| x / a.loops.max(1) as f64;
            if f.timing {
                o.plain(
                    "Actual Startup Time",
                    &format!("{:.3}", per(millis(a.startup))),
                );
                o.plain("Actual Total Time", &format!("{:.3}", per(millis(a.time))));
            }
            o.plain("Actual Rows", &format!("{:.0}", per(a.rows as f64)));
            o.plain("Actual Loops", &a.loops.to_string());
        }
        self.details.iter().for_each(|(k, v)| o.fact(k, v));
        if !self.children.is_empty() {
            o.key("Plans");
            o.out.push('[');
            for (i, c) in self.children.iter().enumerate() {
                let relation = match (&c.label, i) {
                    (Some(_), _) => "SubPlan",
                    (None, _) if matches!(self.kind, "Append" | "Recursive Union" | "SetOp") => {
                        "Member"
                    }
                    (None, 0) => "Outer",
                    (None, _) => "Inner",
                };
                o.out.push_str(if i == 0 { "\n" } else { ",\n" });
                c.json(Some(relation), f, depth + 2, o.out);
            }
            let indent = 2 * (depth + 1);
            write!(o.out, "\n{:indent$}]", "").expect("to a string");
        }
        o.close();
    }
}

/// A JSON object that is written key by key, in the order of the calls, as PostgreSQL writes it.
pub(super) struct Object<'o> {
    out: &'o mut String,
    depth: usize,
    first: bool,
}

impl Object<'_> {
    pub fn open(depth: usize, out: &mut String) -> Object<'_> {
        let indent = 2 * depth;
        write!(out, "{:indent$}{{", "").expect("to a string");
        Object {
            out,
            depth,
            first: true,
        }
    }

    fn key(&mut self, key: &str) {
        let comma = if self.first { "" } else { "," };
        self.first = false;
        let indent = 2 * (self.depth + 1);
        write!(self.out, "{comma}\n{:indent$}\"{key}\": ", "").expect("to a string");
    }

    /// A key with a value that is JSON already.
    pub fn plain(&mut self, key: &str, value: &str) {
        self.key(key);
        self.out.push_str(value);
    }

    fn text(&mut self, key: &str, value: &str) {
        self.plain(key, &quoted(value));
    }

    fn fact(&mut self, key: &str, v: &Fact) {
        match v {
            Fact::Text(t) => self.text(key, t),
            Fact::Flag(b) => self.plain(key, &b.to_string()),
            Fact::List(l) => {
                let items: Vec<String> = l.iter().map(|s| quoted(s)).collect();
                self.plain(key, &format!("[{}]", items.join(", ")));
            }
        }
    }

    pub fn close(self) {
        let indent = 2 * self.depth;
        write!(self.out, "\n{:indent$}}}", "").expect("to a string");
    }
}

fn quoted(s: &str) -> String {
    serde_json::to_string(s).expect("a string")
}
