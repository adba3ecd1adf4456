//! One member's copy of the data.
//!
//! The log is a list of writes and of beginnings of terms. The log and the promise are on the disk before they are answered, so a crash keeps both.
//!
//! Left out on purpose: rows, and the real log. `sim`'s other clusters have them, with an operator in place of the members.

use cluster::waiting::Seen;
use cluster::{NodeId, Standing};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Records by term: a write with its number, or 0 for the beginning of the term.
pub type Log = Vec<(u64, u64)>;

/// What a machine keeps, but for `leads`.
#[derive(Default)]
pub struct Copy {
    pub log: Log,
    /// The last term whose beginning stands in the log.
    pub term: u64,
    pub standing: Standing,
    pub leads: Option<Order>,
    /// Until when no term begins here.
    pub unable: u64,
}

/// A leader's part.
pub struct Order {
    pub term: u64,
    /// Length of the log at the beginning of the term.
    start: usize,
    pub acked: BTreeMap<NodeId, usize>,
    pub acknowledged: usize,
    /// How many copies a commit waits for, and which there are; and what was acknowledged by older rules, or in an earlier life.
    rule: (usize, Vec<NodeId>),
    ruled: usize,
    /// What was acknowledged at the last look.
    looked: usize,
}

impl Copy {
    /// A leader of a lower term leads no more.
    pub fn step_down(&mut self, term: u64) {
        if self.leads.as_ref().is_some_and(|l| l.term < term) {
            self.leads = None;
        }
    }

    /// Leads this term, which it takes. Whether it begins here: after a crash it may lead a term again that is long over, without a lease.
    pub fn begin(&mut self, term: u64) -> bool {
        let begins = self.term < term;
        if begins {
            self.log.push((term, 0));
            self.term = term;
        }
        let start = self.log.iter().rposition(|r| *r == (term, 0));
        self.leads = Some(Order {
            term,
            start: start.expect("the term begins in its leader's log") + 1,
            acked: BTreeMap::new(),
            acknowledged: 0,
            rule: (0, vec![]),
            ruled: self.log.len(),
            looked: 0,
        });
        begins
    }

    /// Takes the log of the leader of this term. How much of it is here; none: a later term was promised.
    pub fn append(&mut self, term: u64, log: Log) -> Option<usize> {
        self.standing = self.standing.asked(term)?;
        self.step_down(term);
        // Within one term the leader's log only grows; an older message says nothing new.
        if self.term < term || self.log.len() < log.len() {
            self.log = log;
            self.term = term;
        }
        Some(self.log.len())
    }
}

impl Order {
    /// Notes which rule holds now: how many copies a commit waits for.
    pub fn follow_rule(&mut self, wanted: usize, copies: &[NodeId]) {
        let rule = (wanted, copies.to_vec());
        if std::mem::replace(&mut self.rule, rule) != self.rule {
            self.ruled = self.ruled.max(self.acknowledged);
        }
    }

    /// How many of these copies hold so much of the log.
    fn holding(&self, copies: &[NodeId], len: usize) -> usize {
        let holds = |c: &&NodeId| self.acked.get(c).is_some_and(|has| *has >= len);
        copies.iter().filter(holds).count()
    }

    /// What its member is told of the copies, of a log of this length.
    pub fn seen(&mut self, wanted: usize, copies: &[NodeId], len: usize) -> Seen {
        self.follow_rule(wanted, copies);
        let before = std::mem::replace(&mut self.looked, self.acknowledged);
        Seen {
            waits: self.acknowledged < len,
            hold_all: self.holding(copies, self.ruled.max(self.start)),
            keep_up: self.holding(copies, before.max(1)),
            waited: wanted,
        }
    }

    /// How much of the log may be acknowledged.
    pub fn reach(&self, wanted: usize, copies: &[NodeId], len: usize) -> usize {
        let has = |c: &NodeId| self.acked.get(c).copied().unwrap_or(0);
        let mut acked: Vec<usize> = copies.iter().map(has).collect();
        acked.sort_unstable_by_key(|len| Reverse(*len));
        match wanted {
            0 => len,
            n => acked.get(n - 1).copied().unwrap_or(0).min(len),
        }
    }
}
