//! What holds after each step, whatever breaks.
//!
//! | rule | what would break it |
//! |---|---|
//! | a term of the data has one leader, which has all that was acknowledged before | a copy is named that lacks commits |
//! | no two members hold a valid lease of a primary at once; terms that acknowledge only rise | a lease that ends too late, or is not waited for |
//! | a strong read shows all that was acknowledged anywhere before | the same |
//! | at an index all members have the same catalogue, in whatever life, and its term does not fall | an entry that a majority had and that is lost |
//!
//! Left out on purpose: how long a cluster takes to be whole again. [`super::play`] waits for that when all is mended.

use super::copy::Log;
use cluster::{Catalogue, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// What has been seen so far, and the first rule that was broken.
#[derive(Default)]
pub struct Rules {
    /// Writes that were acknowledged to a client.
    acknowledged: BTreeSet<u64>,
    /// The term of the last one.
    term: u64,
    next_write: u64,
    /// Leaders of the data, and of the consensus, by term.
    leaders: BTreeMap<u64, NodeId>,
    elected: BTreeSet<(u64, NodeId)>,
    /// The catalogue by index, where one was seen.
    agreed: BTreeMap<u64, Catalogue>,
    /// How often the members have agreed to go on without a copy.
    degraded: u64,
    broken: Option<String>,
}

impl Rules {
    /// A rule does not hold.
    pub fn fail(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// The first rule that did not hold.
    pub fn broken(&self) -> Option<&String> {
        self.broken.as_ref()
    }

    /// The newest catalogue that was seen, and its index.
    pub fn newest(&self) -> (u64, Catalogue) {
        let last = self.agreed.last_key_value();
        last.map_or_else(Default::default, |(index, c)| (*index, c.clone()))
    }

    /// How many writes were acknowledged, and the term of the last.
    pub fn acknowledged(&self) -> (usize, u64) {
        (self.acknowledged.len(), self.term)
    }

    /// How many terms of the consensus, and of the data, had a leader.
    pub fn terms(&self) -> (usize, usize) {
        (self.elected.len(), self.leaders.len())
    }

    /// How often the members have agreed to go on without a copy.
    pub fn degraded(&self) -> u64 {
        self.degraded
    }

    /// The number of the next write.
    pub fn next_write(&mut self) -> u64 {
        self.next_write += 1;
        self.next_write
    }

    /// A copy begins to lead this term, or goes on after a crash.
    pub fn leads(&mut self, node: NodeId, term: u64, begins: bool, log: &Log) {
        if *self.leaders.entry(term).or_insert(node) != node {
            self.fail(format!("term {term} has two leaders"));
        }
        // A term that is over by now comes to nothing: enough copies take its records no more.
        let counts = self.newest().1.phase().is_some_and(|p| p.term() == term);
        if begins && counts {
            self.has_all(node, term, log);
        }
    }

    /// The log of the leader of this term has all that was acknowledged.
    pub fn has_all(&mut self, node: NodeId, term: u64, log: &Log) {
        let has: BTreeSet<u64> = log.iter().map(|r| r.1).collect();
        if let Some(lost) = self.acknowledged.difference(&has).next() {
            let what =
                format!("n{node} leads term {term} without write {lost}, which was acknowledged");
            self.fail(what);
        }
    }

    /// A primary acknowledges these records to its clients.
    pub fn acknowledges(&mut self, node: NodeId, term: u64, records: &[(u64, u64)]) {
        let writes = records.iter().map(|r| r.1).filter(|w| *w > 0);
        let new: Vec<u64> = writes.filter(|w| !self.acknowledged.contains(w)).collect();
        if new.is_empty() {
            return;
        }
        if term < self.term {
            let later = self.term;
            let what =
                format!("n{node} acknowledges in term {term}, and term {later} has begun to");
            self.fail(what);
        }
        self.term = self.term.max(term);
        self.acknowledged.extend(new);
    }

    /// A primary answers a strong read by its lease.
    pub fn reads(&mut self, node: NodeId, log: &Log) {
        let Some(newest) = self.acknowledged.last().copied() else {
            return;
        };
        // Numbers ascend in the order of all writes, and so in each log: the newest one stands near the end.
        if !log.iter().rev().any(|r| r.1 == newest) {
            let what = format!(
                "a strong read at n{node} does not show write {newest}, which was acknowledged"
            );
            self.fail(what);
        }
    }

    /// A member leads the consensus in this term, as far as it knows. openraft lets a member of a higher number win the same term later.
    pub fn wins(&mut self, node: NodeId, term: u64) {
        self.elected.insert((term, node));
    }

    /// These primaries may acknowledge now, by what they know.
    pub fn hold_leases(&mut self, holders: &[(NodeId, u64)]) {
        if holders.len() > 1 {
            self.fail(format!("two primaries hold a lease: {holders:?}"));
        }
    }

    /// A member has this catalogue at this index.
    pub fn agrees(&mut self, node: NodeId, index: u64, catalogue: Catalogue) {
        if index == 0 || self.agreed.get(&index) == Some(&catalogue) {
            return;
        }
        let term = |c: &Catalogue| c.phase().map(|p| p.term());
        let now = term(&catalogue);
        let before = self.agreed.range(..index).next_back();
        let after = self.agreed.range(index + 1..).next();
        let falls =
            before.is_some_and(|(_, c)| term(c) > now) || after.is_some_and(|(_, c)| term(c) < now);
        let degrades = catalogue.degraded() && !before.is_some_and(|(_, c)| c.degraded());
        if falls {
            self.fail(format!("the term of the catalogue falls at index {index}"));
        }
        if let Some(known) = self.agreed.get(&index)
            && *known != catalogue
        {
            let what = format!(
                "n{node} has another catalogue at index {index}: {catalogue:?} and not {known:?}"
            );
            return self.fail(what);
        }
        self.degraded += u64::from(degrades);
        self.agreed.insert(index, catalogue);
    }
}
