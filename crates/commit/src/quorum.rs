//! What is durable by the cluster's policy, from what is flushed here and what replicas have acknowledged.
//!
//! ```text
//! replicas wanted: N          decided                              written                              applied
//! 0                           flushed                              flushed                              min(flushed, lowest visible of all that follow)
//! N >= 1                      min(flushed, N-th highest persisted) min(flushed, N-th highest received)  min(decided, N-th highest visible)
//! ```
//! With N = 0 nobody is waited for, so *applied*, which is about replicas, means those that follow now (commit-wait). A replica that has left
//! counts no more: what only it had acknowledged may not be promised for later commits. Nothing that was decided is taken back;
//! callers raise watermarks.
//!
//! N counts replicas, not connections. One that is cut off without a word and connects anew has two connections here until the silence of the
//! older is noticed; of connections of one name only the newest that has acknowledged counts. Two replicas of one name are one, which
//! errs on the safe side. (*applied* with N = 0 waits for every connection: there the safe side is the other one.)
//!
//! Left out on purpose: weights and named groups of replicas.

use base::Position;
use std::collections::BTreeMap;

/// What a replica has acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// The term that it follows.
    pub term: u64,
    /// In its memory.
    pub received: Position,
    /// In its log, flushed.
    pub persisted: Position,
    /// Shown to its readers.
    pub visible: Position,
}

/// How far each level reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    pub decided: Position,
    pub written: Position,
    pub applied: Position,
}

/// See the head of the file.
#[derive(Clone, Debug, Default)]
pub struct Quorum {
    wanted: usize,
    term: u64,
    /// By connection; a newer one has a higher number.
    replicas: BTreeMap<u64, Replica>,
}

#[derive(Clone, Debug)]
struct Replica {
    name: String,
    acked: Acked,
}

impl Quorum {
    /// `wanted`: how many replicas must hold a commit.
    pub fn new(wanted: usize) -> Quorum {
        Quorum {
            wanted,
            ..Quorum::default()
        }
    }

    /// How many replicas must hold a commit.
    pub fn replicas(&self) -> usize {
        self.wanted
    }

    /// From now on so many must hold one.
    pub fn want(&mut self, wanted: usize) {
        self.wanted = wanted;
    }

    /// Acknowledgements of older terms do not count from here on.
    pub fn begin_term(&mut self, term: u64) {
        assert!(term >= self.term, "terms only grow");
        self.term = term;
        self.replicas.retain(|_, r| r.acked.term >= term);
    }

    /// A replica of this name says over a connection how far it is. Its marks only grow while it follows.
    pub fn acked(&mut self, connection: u64, name: &str, acked: Acked) {
        if acked.term < self.term {
            return;
        }
        let new = || Replica {
            name: name.to_owned(),
            acked: Acked::default(),
        };
        let a = &mut self.replicas.entry(connection).or_insert_with(new).acked;
        a.term = acked.term;
        a.received = a.received.max(acked.received);
        a.persisted = a.persisted.max(acked.persisted);
        a.visible = a.visible.max(acked.visible);
    }

    /// A connection is no more.
    pub fn left(&mut self, connection: u64) {
        self.replicas.remove(&connection);
    }

    /// The levels when everything up to `flushed` is durable here.
    pub fn levels(&self, flushed: Position) -> Levels {
        if self.wanted == 0 {
            let lowest = self.replicas.values().map(|r| r.acked.visible).min();
            return Levels {
                decided: flushed,
                written: flushed,
                applied: lowest.map_or(flushed, |p| p.min(flushed)),
            };
        }
        let decided = self.nth(|a| a.persisted).min(flushed);
        Levels {
            decided,
            written: self.nth(|a| a.received).min(flushed),
            applied: self.nth(|a| a.visible).min(decided),
        }
    }

    /// The highest position that `wanted` replicas have reached.
    fn nth(&self, of: impl Fn(&Acked) -> Position) -> Position {
        let newer =
            |id: u64, name: &str| self.replicas.range(id + 1..).any(|(_, r)| r.name == name);
        let counts = |(id, r): &(&u64, &Replica)| !newer(**id, &r.name);
        let all = self.replicas.iter().filter(counts);
        let mut all: Vec<Position> = all.map(|(_, r)| of(&r.acked)).collect();
        all.sort_unstable();
        match all.len().checked_sub(self.wanted) {
            Some(i) => all[i],
            None => Position::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn p(n: u32) -> Position {
        Position::new(1, n)
    }

    fn acked(received: u32, persisted: u32, visible: u32) -> Acked {
        Acked {
            term: 1,
            received: p(received),
            persisted: p(persisted),
            visible: p(visible),
        }
    }

    #[test]
    fn nobody_is_waited_for_unless_asked() {
        let mut q = Quorum::new(0);
        assert_eq!(q.levels(p(5)).applied, p(5));
        q.acked(1, "r1", acked(4, 3, 2));
        let all = q.levels(p(5));
        assert_eq!((all.decided, all.written, all.applied), (p(5), p(5), p(2)));
        q.left(1);
        assert_eq!(q.levels(p(5)).applied, p(5));
    }

    #[test]
    fn a_quorum_decides() {
        let mut q = Quorum::new(2);
        assert_eq!(q.levels(p(9)).decided, Position::ZERO);
        q.acked(1, "r1", acked(9, 8, 7));
        assert_eq!(q.levels(p(9)).decided, Position::ZERO);
        q.acked(2, "r2", acked(6, 5, 4));
        q.acked(3, "r3", acked(4, 4, 1));
        let now = q.levels(p(9));
        assert_eq!((now.written, now.decided, now.applied), (p(6), p(5), p(4)));
        assert_eq!(q.levels(p(3)).decided, p(3), "flushed here, too");
        q.left(1);
        assert_eq!(q.levels(p(9)).decided, p(4));
        q.begin_term(2);
        q.acked(2, "r2", acked(9, 9, 9));
        assert_eq!(q.levels(p(9)).decided, Position::ZERO, "of an older term");
    }

    /// A replica that was cut off without a word comes back over another connection: it is one replica, not two.
    #[test]
    fn a_replica_counts_once_however_often_it_connects() {
        let mut q = Quorum::new(2);
        q.acked(1, "a", acked(5, 5, 5));
        q.acked(2, "a", acked(5, 5, 5));
        assert_eq!(q.levels(p(9)), Levels::default());
        q.acked(3, "b", acked(4, 4, 4));
        assert_eq!(q.levels(p(9)).decided, p(4));
        // The older connection says nothing more that counts, and its end takes nothing away.
        q.acked(2, "a", acked(7, 7, 7));
        q.acked(3, "b", acked(8, 8, 8));
        q.acked(1, "a", acked(9, 9, 9));
        assert_eq!(q.levels(p(9)).decided, p(7));
        q.left(1);
        assert_eq!(q.levels(p(9)).decided, p(7));
    }

    /// What happens to a decider.
    #[derive(Clone, Debug)]
    enum Step {
        Acked(u64, Acked),
        Left(u64),
        Term(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let ack = (0u64..6, 0u64..4, 0u32..30, 0u32..30, 0u32..30);
        prop_oneof![
            9 => ack.prop_map(|(id, term, r, p, v)| Step::Acked(id, Acked { term, ..acked(r, p, v) })),
            2 => (0u64..6).prop_map(Step::Left),
            1 => (0u64..4).prop_map(Step::Term),
        ]
    }

    /// Connections 0 to 5 are of replicas 0 to 3.
    fn name(connection: u64) -> String {
        format!("r{}", connection % 4)
    }

    /// All of the past, counted position by position: how many of those that follow now have said, since they came and in no older
    /// term, that they have reached it. A replica's newest connection speaks for it.
    fn counted(past: &[Step], wanted: usize, flushed: u32) -> [u32; 3] {
        let (mut term, mut said): (u64, Vec<(u64, Vec<Acked>)>) = (0, vec![]);
        for s in past {
            match s {
                Step::Term(t) => {
                    term = term.max(*t);
                    said.retain(|(_, acks)| acks.last().is_some_and(|a| a.term >= term));
                }
                Step::Left(id) => said.retain(|(i, _)| i != id),
                Step::Acked(_, a) if a.term < term => {}
                Step::Acked(id, a) => match said.iter_mut().find(|(i, _)| i == id) {
                    Some((_, acks)) => acks.push(*a),
                    None => said.push((*id, vec![*a])),
                },
            }
        }
        let reached = |of: fn(&Acked) -> Position, most: u32| {
            let has = |acks: &[Acked], n: u32| acks.iter().any(|a| of(a) >= p(n));
            let old = |id: u64| wanted > 0 && said.iter().any(|(i, _)| *i == id + 4);
            let enough = |n: &u32| {
                let have = said.iter().filter(|(i, acks)| !old(*i) && has(acks, *n));
                have.count() >= if wanted == 0 { said.len() } else { wanted }
            };
            (0..=most).filter(enough).max()
        };
        let level = |of| match wanted {
            0 => flushed,
            _ => reached(of, flushed).unwrap_or(0),
        };
        let decided = level(|a| a.persisted);
        let applied = reached(|a| a.visible, decided).unwrap_or(0);
        [decided, level(|a| a.received), applied]
    }

    proptest! {
        #[test]
        fn equals_the_count(wanted in 0usize..4, flushed in 0u32..40, steps in prop::collection::vec(step(), 0..40)) {
            let mut q = Quorum::new(wanted);
            let mut term = 0;
            for s in &steps {
                match s {
                    Step::Acked(id, a) => q.acked(*id, &name(*id), *a),
                    Step::Left(id) => q.left(*id),
                    Step::Term(t) => {
                        term = term.max(*t);
                        q.begin_term(term);
                    }
                }
            }
            let now = q.levels(p(flushed));
            let [decided, written, applied] = counted(&steps, wanted, flushed);
            // Epoch 1 begins at p(0): nobody yet is position zero.
            let at = |n: u32, got: Position| got == p(n) || (n == 0 && got == Position::ZERO);
            prop_assert!(at(decided, now.decided), "{} {:?}", decided, now);
            prop_assert!(at(written, now.written), "{} {:?}", written, now);
            prop_assert!(at(applied, now.applied), "{} {:?}", applied, now);
            prop_assert!(now.applied <= now.decided && now.decided <= p(flushed));
        }
    }
}
