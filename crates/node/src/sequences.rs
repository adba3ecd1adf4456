//! Sequences: numbers that are never given twice, not even after a crash.
//!
//! Values are taken from a range that a log record has reserved. The record goes into the order before the first value of
//! its range is handed out, so every commit that can contain such a value comes after it in the log: whatever survives a
//! crash, survives with the reservation. Nothing waits for a flush here: with a number comes the position of its record,
//! and a reply that shows the number waits until that is published. A crash loses at most the rest of a range. A site draws many at once
//! ([`crate::ranges`]).
//!
//! RESTART begins another *generation* of a sequence, and a transaction may be rolled back that has. Each generation stands by itself: numbers that
//! such a transaction draws of its own take nothing from the generation that goes on.
//!
//! Left out on purpose: when a transaction with a generation of its own ends. The generations that no sequence has are forgotten at a checkpoint, all but
//! those that were used last.

use crate::ranges::Numbers;
use base::record::{CommitBuilder, RecordKind};
use base::schema::{Relation, Schema, SequenceDef};
use base::{Error, Oid, Position, Result, SqlState};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use txn::CommitOrder;

/// Values reserved at a time.
const RANGE: u32 = 64;

/// Generations kept that no sequence has: of transactions that are open, and of those that were rolled back or have restarted or dropped a sequence.
const MOST_OTHERS: usize = 1 << 12;

/// Where a sequence stands, as logged: the last value that may have been given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    pub value: i64,
    pub is_called: bool,
    pub generation: u64,
    /// By `setval`: what was drawn before is no part of what is given now.
    pub set: bool,
}

const IS_CALLED: u8 = 1;
const SET: u8 = 2;

impl Logged {
    const BYTES: usize = 17;

    pub fn encode(&self) -> [u8; Logged::BYTES] {
        let mut b = [0; Logged::BYTES];
        b[..8].copy_from_slice(&self.value.to_le_bytes());
        b[8] = u8::from(self.is_called) * IS_CALLED + u8::from(self.set) * SET;
        b[9..].copy_from_slice(&self.generation.to_le_bytes());
        b
    }

    pub fn decode(b: &[u8]) -> Option<Logged> {
        if b.len() != Logged::BYTES {
            return None;
        }
        Some(Logged {
            value: i64::from_le_bytes(b[..8].try_into().ok()?),
            is_called: b[8] & IS_CALLED != 0,
            generation: u64::from_le_bytes(b[9..].try_into().ok()?),
            set: b[8] & SET != 0,
        })
    }
}

struct State {
    logged: Logged,
    /// Where that stands in the log; zero: it was there at the start.
    at: Position,
    /// Which of all reservations that was.
    turn: u64,
    /// The last value given out, and whether it was (as `last_value` and `is_called` in PostgreSQL).
    value: i64,
    is_called: bool,
}

/// A sequence, and which life of it.
type Name = (Oid, u64);

fn name(def: &SequenceDef) -> Name {
    (def.id, def.generation)
}

/// All sequences of a node.
#[derive(Default)]
pub struct Sequences {
    states: RwLock<HashMap<Name, Arc<Mutex<State>>>>,
    turns: AtomicU64,
}

impl Sequences {
    /// What recovery read.
    pub fn restore(&self, id: Oid, logged: Logged) {
        let state = State {
            logged,
            at: Position::ZERO,
            turn: self.turn(),
            value: logged.value,
            is_called: logged.is_called,
        };
        let name = (id, logged.generation);
        let state = Arc::new(Mutex::new(state));
        self.states.write().insert(name, state);
    }

    /// Every logged state, the one that was used last at the end, for a checkpoint. Take the checkpoint's position *before*: states may run ahead
    /// of it.
    pub fn dump(&self) -> Vec<(Oid, Logged)> {
        let of = |(name, s): (&Name, &Arc<Mutex<State>>)| {
            let s = s.lock();
            (s.turn, name.0, s.logged)
        };
        let mut all: Vec<_> = self.states.read().iter().map(of).collect();
        all.sort_unstable_by_key(|s| s.0);
        all.into_iter()
            .map(|(_, id, logged)| (id, logged))
            .collect()
    }

    /// Forgets generations that no sequence of the schema has, which is the newest. Those that were used last stay, since a transaction that is
    /// open may have one.
    pub fn prune(&self, schema: &Schema) {
        let is_other = |name: &Name| match schema.relation(name.0) {
            Some(Relation::Sequence(s)) => s.generation != name.1,
            _ => true,
        };
        let count = || self.states.read().keys().filter(|n| is_other(n)).count();
        if count() <= MOST_OTHERS {
            return;
        }
        let mut all = self.states.write();
        let others = all.iter().filter(|(n, _)| is_other(n));
        let mut others: Vec<(u64, Name)> = others.map(|(n, s)| (s.lock().turn, *n)).collect();
        others.sort_unstable();
        others.truncate(others.len().saturating_sub(MOST_OTHERS));
        for (_, name) in others {
            // One that is being drawn from is in use.
            if all.get(&name).is_some_and(|s| Arc::strong_count(s) == 1) {
                all.remove(&name);
            }
        }
    }

    fn turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    fn state(&self, def: &SequenceDef) -> Arc<Mutex<State>> {
        let found = self.states.read().get(&name(def)).cloned();
        found.unwrap_or_else(|| {
            let mut all = self.states.write();
            all.entry(name(def))
                .or_insert_with(|| Arc::new(Mutex::new(fresh(def, self.turn()))))
                .clone()
        })
    }

    /// The next value, and what has to be published before it is told. The caller has waited for room in the log. `reserve` has the range up
    /// to a value written down, and gives the position of that.
    pub fn next(
        &self,
        def: &SequenceDef,
        reserve: impl Fn(Logged) -> Result<Position>,
    ) -> Result<(i64, Position)> {
        self.take(def, 1, reserve).map(|t| (t.first, t.at))
    }

    /// The same of several values in a row: `count`, or as many as there are before the sequence's limit.
    pub fn take(
        &self,
        def: &SequenceDef,
        count: u32,
        reserve: impl Fn(Logged) -> Result<Position>,
    ) -> Result<Numbers> {
        let state = self.state(def);
        let mut s = state.lock();
        let value = if s.is_called {
            step(def, s.value, 1).ok_or_else(|| at_limit(def))?
        } else {
            s.value
        };
        let (last, taken) = steps(def, value, count);
        let within = s.logged.is_called
            && if def.increment > 0 {
                last <= s.logged.value
            } else {
                last >= s.logged.value
            };
        if !within || (s.is_called && wrapped(def, s.value, value)) {
            let logged = Logged {
                value: steps(def, last, RANGE).0,
                is_called: true,
                generation: def.generation,
                set: false,
            };
            s.at = reserve(logged)?;
            (s.logged, s.turn) = (logged, self.turn());
        }
        (s.value, s.is_called) = (last, true);
        Ok(Numbers {
            first: value,
            increment: def.increment,
            count: taken,
            at: s.at,
        })
    }

    /// See `Engine::setval`; what has to be published before that is told. The caller has waited for room in the log.
    pub fn set(
        &self,
        def: &SequenceDef,
        value: i64,
        is_called: bool,
        reserve: impl Fn(Logged) -> Result<Position>,
    ) -> Result<Position> {
        if value < def.min || value > def.max {
            let what = format!(
                "setval: value {value} is out of bounds for sequence \"{}\" ({}..{})",
                def.name, def.min, def.max
            );
            return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, what));
        }
        let state = self.state(def);
        let mut s = state.lock();
        let logged = Logged {
            value,
            is_called,
            generation: def.generation,
            set: true,
        };
        let at = reserve(logged)?;
        *s = State {
            logged,
            at,
            turn: self.turn(),
            value,
            is_called,
        };
        Ok(at)
    }

    /// (last value, is called).
    pub fn look(&self, def: &SequenceDef) -> (i64, bool) {
        let known = self.states.read().get(&name(def)).cloned();
        known.map_or((first(def), false), |s| {
            let s = s.lock();
            (s.value, s.is_called)
        })
    }
}

/// The first value of the sequence's present generation.
fn first(def: &SequenceDef) -> i64 {
    def.restart.unwrap_or(def.start)
}

fn fresh(def: &SequenceDef, turn: u64) -> State {
    let logged = Logged {
        value: first(def),
        is_called: false,
        generation: def.generation,
        set: false,
    };
    State {
        logged,
        at: Position::ZERO,
        turn,
        value: first(def),
        is_called: false,
    }
}

fn step_no_cycle(def: &SequenceDef, from: i64, n: i64) -> Option<i64> {
    let v = from.checked_add(def.increment.checked_mul(n)?)?;
    (def.min <= v && v <= def.max).then_some(v)
}

/// Where so many values end that begin with this one, without beginning anew; and how many there are. A range of CACHE may have thousands of millions.
fn steps(def: &SequenceDef, from: i64, count: u32) -> (i64, u32) {
    let (from, step) = (i128::from(from), i128::from(def.increment));
    let room = match step > 0 {
        true => i128::from(def.max) - from,
        false => from - i128::from(def.min),
    };
    let more = (room / step.abs().max(1)).clamp(0, i128::from(count.max(1) - 1));
    ((from + more * step) as i64, more as u32 + 1)
}

fn step(def: &SequenceDef, from: i64, n: i64) -> Option<i64> {
    let around = if def.increment > 0 { def.min } else { def.max };
    step_no_cycle(def, from, n).or(def.cycle.then_some(around))
}

fn wrapped(def: &SequenceDef, from: i64, to: i64) -> bool {
    (def.increment > 0) != (to > from)
}

fn at_limit(def: &SequenceDef) -> Error {
    let (side, bound) = if def.increment > 0 {
        ("maximum", def.max)
    } else {
        ("minimum", def.min)
    };
    let what = format!(
        "nextval: reached {side} value of sequence \"{}\" ({bound})",
        def.name
    );
    Error::new(SqlState::SEQUENCE_LIMIT, what)
}

/// Writes down where a sequence stands; the record's position.
pub(crate) fn log(id: Oid, state: Logged, order: &dyn CommitOrder) -> Result<Position> {
    let mut b = CommitBuilder::new();
    b.push(RecordKind::Sequence, id, &[], &state.encode());
    let (position, ticket) = order.begin()?;
    let (heads, data) = b.finish(position, 0);
    order.ready(ticket, heads, data);
    Ok(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Log(Mutex<Vec<Logged>>);

    impl Log {
        fn of(&self, def: &SequenceDef) -> impl Fn(Logged) -> Result<Position> {
            let id = def.id;
            move |upto| log(id, upto, self)
        }
    }

    impl CommitOrder for Log {
        fn wait_for_room(&self, _: &dyn Fn() -> Result<()>) -> Result<()> {
            Ok(())
        }

        fn begin(&self) -> Result<(Position, u64)> {
            Ok((Position::new(1, 0), 0))
        }
        fn ready(&self, _: u64, heads: Vec<u8>, data: Vec<u8>) {
            let c = base::record::Commit::take(&mut &heads[..], &mut &data[..]).unwrap();
            let r = c.iter().next().unwrap().unwrap();
            self.0.lock().push(Logged::decode(r.row).unwrap());
        }
        fn abort(&self, _: u64) {}
    }

    fn def(increment: i64, min: i64, max: i64, start: i64, cycle: bool) -> SequenceDef {
        SequenceDef {
            id: 1,
            namespace: 2200,
            name: "s".into(),
            owner: 10,
            type_oid: 20,
            start,
            increment,
            min,
            max,
            cycle,
            cache: 1,
            owned_by: None,
            restart: None,
            generation: 0,
            acl: vec![],
        }
    }

    #[test]
    fn no_value_is_given_again_after_a_crash() {
        let d = def(1, 1, i64::MAX, 1, false);
        let log = Log::default();
        let mut seen = std::collections::HashSet::new();
        let mut last = None;
        for round in 0..5 {
            let s = Sequences::default();
            if let Some(l) = last {
                s.restore(1, l);
            }
            for _ in 0..(10 + round * 37) {
                assert!(seen.insert(s.next(&d, log.of(&d)).unwrap().0));
            }
            last = log.0.lock().last().copied();
        }
        assert!(seen.contains(&1) && seen.contains(&2));
    }

    #[test]
    fn a_restart_that_is_rolled_back_takes_nothing() {
        let log = Log::default();
        let s = Sequences::default();
        let d = def(1, 1, i64::MAX, 1, false);
        let restarted = SequenceDef {
            generation: 7,
            restart: Some(2),
            ..d.clone()
        };
        let next = |s: &Sequences, d: &SequenceDef| s.next(d, log.of(d)).unwrap().0;
        assert_eq!([next(&s, &d), next(&s, &d), next(&s, &d)], [1, 2, 3]);
        assert_eq!([next(&s, &restarted), next(&s, &restarted)], [2, 3]);
        assert_eq!((s.look(&d), next(&s, &d)), ((3, true), 4));
        assert_eq!(next(&s, &restarted), 4, "it may go on, too");
        // After a crash, whatever the log has last.
        let after = Sequences::default();
        for l in log.0.lock().iter() {
            after.restore(1, *l);
        }
        assert!(next(&after, &d) > 4 && next(&after, &restarted) > 4);
    }

    #[test]
    fn generations_of_no_sequence_are_forgotten_but_for_the_last() {
        let log = Log::default();
        let s = Sequences::default();
        let d = def(1, 1, i64::MAX, 1, false);
        let of = |generation| SequenceDef {
            generation,
            ..d.clone()
        };
        let schema = Schema::bootstrap("canon");
        let schema = schema.apply(&[base::schema::Change::Put(base::schema::Object::Sequence(
            of(3),
        ))]);
        let last = MOST_OTHERS as u64 + 10;
        for generation in 0..=last {
            let d = of(generation);
            assert_eq!(s.next(&d, log.of(&d)).unwrap().0, 1);
        }
        s.prune(&schema);
        assert_eq!(s.dump().len(), MOST_OTHERS + 1);
        let next = |generation| s.next(&of(generation), log.of(&of(generation))).unwrap().0;
        assert_eq!(next(3), 2, "a sequence has it");
        assert_eq!(next(last), 2, "a transaction may have it");
        assert_eq!(next(0), 1, "it is gone");
    }

    #[test]
    fn a_range_of_any_length_is_found_at_once() {
        let up = def(3, 1, i64::MAX, 1, false);
        let many = u32::MAX;
        assert_eq!(steps(&up, 1, many), (1 + 3 * (i64::from(many) - 1), many));
        assert_eq!(steps(&up, i64::MAX - 7, many), (i64::MAX - 1, 3));
        assert_eq!(steps(&def(-2, -5, -1, -1, true), -1, 10), (-5, 3));
        let all = def(i64::MAX, i64::MIN, i64::MAX, 0, false);
        assert_eq!(steps(&all, i64::MIN, many), (i64::MAX - 1, 3));
        assert_eq!(steps(&up, 5, 0), (5, 1));
    }

    #[test]
    fn limits_cycles_and_setval() {
        let log = Log::default();
        let s = Sequences::default();
        let d = def(1, 1, 3, 1, false);
        let three: Vec<i64> = (0..3).map(|_| s.next(&d, log.of(&d)).unwrap().0).collect();
        assert_eq!(three, [1, 2, 3]);
        assert_eq!(
            s.next(&d, log.of(&d)).unwrap_err().code(),
            SqlState::SEQUENCE_LIMIT
        );
        let c = def(-2, -5, -1, -1, true);
        let s = Sequences::default();
        let five: Vec<i64> = (0..5).map(|_| s.next(&c, log.of(&c)).unwrap().0).collect();
        assert_eq!(five, [-1, -3, -5, -1, -3]);
        s.set(&c, -3, false, log.of(&c)).unwrap();
        assert_eq!(
            (s.look(&c), s.next(&c, log.of(&c)).unwrap().0),
            ((-3, false), -3)
        );
    }
}
