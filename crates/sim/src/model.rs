//! Every commit that a primary ever made, by term and position, and what a history is: terms, and where each began.
//!
//! A position belongs to the newest term that began below it. So the state at a position of a history is all its commits up to
//! there, each of the term that its position belongs to; two histories share what comes before their fork.

use base::Position;
use base::record::{self, RecordKind};
use replica::ship::term_at;
use std::collections::{BTreeMap, BTreeSet};

/// Terms of a history: (term, last position before it), ascending.
pub type Terms = Vec<(u64, Position)>;

/// Key and row of the table; none: deleted.
pub type Write = (Vec<u8>, Option<Vec<u8>>);

/// Rows by key.
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// What was promised of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// `synchronous_commit = off`: until the next crash.
    Off,
    /// `local`: while this node's disk is the history's.
    Local,
    /// `remote_write`: and while the memory of the replicas that have it stands.
    Remote,
    /// `on`, `remote_apply`: by the cluster's policy.
    Policy,
}

#[derive(Default)]
pub struct Model {
    commits: BTreeMap<(Position, u64), Vec<Write>>,
    acknowledged: BTreeMap<(Position, u64), Promise>,
    /// Acknowledged and lost, as the promise allowed.
    pub forgiven: BTreeSet<(Position, u64)>,
}

impl Model {
    /// A primary has installed a commit.
    pub fn committed(&mut self, term: u64, at: Position, heads: &[u8], data: &[u8]) {
        let (mut h, mut d) = (heads, data);
        let commit = record::Commit::take(&mut h, &mut d).expect("a commit's record is readable");
        assert_eq!(commit.position, at);
        let writes = commit.iter().map(|r| r.expect("a record is readable"));
        let writes = writes.filter_map(|r| match r.kind {
            RecordKind::Put => Some((r.key.to_vec(), Some(r.row.to_vec()))),
            RecordKind::Delete => Some((r.key.to_vec(), None)),
            RecordKind::Schema | RecordKind::Sequence | RecordKind::Notify => None,
        });
        self.commits.insert((at, term), writes.collect());
    }

    /// A client was told.
    pub fn acknowledged(&mut self, term: u64, at: Position, promise: Promise) {
        let known = self.acknowledged.entry((at, term)).or_insert(promise);
        *known = (*known).max(promise);
    }

    /// A machine came back with this history up to `last`; what its term had above is gone. The strongest promise among the
    /// acknowledged ones that are lost with it.
    pub fn crashed(&mut self, term: u64, last: Position) -> Option<Promise> {
        let gone = |k: &(Position, u64)| k.1 == term && k.0 > last;
        self.commits.retain(|k, _| !gone(k));
        let lost: Vec<_> = self.acknowledged.iter().filter(|(k, _)| gone(k)).collect();
        let strongest = lost.iter().map(|(_, p)| **p).max();
        let keys: Vec<_> = lost.into_iter().map(|(k, _)| *k).collect();
        for k in keys {
            self.acknowledged.remove(&k);
        }
        strongest
    }

    /// Acknowledged commits that this history does not hold.
    pub fn missing(&self, terms: &Terms, last: Position) -> Vec<((Position, u64), Promise)> {
        let lost = |(k, _): &(&(Position, u64), &Promise)| k.0 > last || term_at(terms, k.0) != k.1;
        let all = self.acknowledged.iter().filter(lost);
        all.filter(|(k, _)| !self.forgiven.contains(k))
            .map(|(k, p)| (*k, *p))
            .collect()
    }

    /// Every commit that was acknowledged and has not been lost.
    pub fn all_acknowledged(&self) -> BTreeSet<(Position, u64)> {
        let all = self.acknowledged.keys().copied();
        all.filter(|k| !self.forgiven.contains(k)).collect()
    }

    /// Whether an acknowledged commit was lost since, as its promise allowed.
    pub fn is_lost(&self, k: (Position, u64)) -> bool {
        self.forgiven.contains(&k) || !self.acknowledged.contains_key(&k)
    }

    /// How many commits were acknowledged.
    pub fn acknowledgements(&self) -> usize {
        self.acknowledged.len()
    }

    /// Carries `rows`, the state of the history at `from`, on to `to`.
    pub fn advance(&self, terms: &Terms, rows: &mut Rows, from: Position, to: Position) {
        if from >= to {
            return;
        }
        for ((at, term), writes) in self.commits.range((from.next(), 0)..=(to, u64::MAX)) {
            if term_at(terms, *at) != *term {
                continue;
            }
            for (key, row) in writes {
                match row {
                    Some(row) => rows.insert(key.clone(), row.clone()),
                    None => rows.remove(key),
                };
            }
        }
    }

    /// The state of the history at a position.
    pub fn rows(&self, terms: &Terms, at: Position) -> Rows {
        let mut rows = Rows::new();
        self.advance(terms, &mut rows, Position::ZERO, at);
        rows
    }
}
