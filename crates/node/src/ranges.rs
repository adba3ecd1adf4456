//! Numbers of sequences that a site has drawn from its primary, to give to its sessions one by one.
//!
//! ```text
//! session ──▶ take ──▶ a number
//!               │
//!               └── half of the range is gone: ask for the next one ══▶ primary: Node::draw_range, a record in its log
//!             come ◀══════════════════════════════════════════════════ numbers, once that record is published
//! replay ───▶ forget: setval, ALTER SEQUENCE and DROP end what was drawn before them
//! ```
//! A range is drawn once for many sessions. Each range is twice as large as the one before while a range lasts less than a second, and half as
//! large when it lasts longer than a minute. No range has more than a 1,024th part of the numbers that its sequence can give; so a
//! short sequence is not used up by sites. CACHE raises the least size.
//!
//! Numbers are unique over the nodes of a cluster, and not in order between them. A number comes later in the log than the record of its range, so
//! whatever survives with the number survives with the record. What a site has drawn and not given is lost when the site ends, as with
//! CACHE in PostgreSQL.
//!
//! Left out on purpose: the way to the primary ([`crate::Certifier`]); a range that is given back.

use base::schema::SequenceDef;
use base::{Oid, Position, Result};
use futures::channel::oneshot;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Least and greatest size of a range.
const LEAST: u32 = 32;
const MOST: u32 = 1024;

/// A sequence has so many ranges at least.
const RANGES: u128 = 1024;

/// A range that lasts less than this was too small, and one that lasts longer than this was too large; in milliseconds.
const SHORT: u64 = 1_000;
const LONG: u64 = 60_000;

/// Numbers of a sequence, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub first: i64,
    pub increment: i64,
    pub count: u32,
    /// A change of the sequence above this position came after they were drawn.
    pub at: Position,
}

impl Numbers {
    /// The first of them, which is theirs no more.
    fn next(&mut self) -> Option<i64> {
        self.count = self.count.checked_sub(1)?;
        let n = self.first;
        // Behind the last one there may be no number.
        self.first = n.wrapping_add(self.increment);
        Some(n)
    }
}

/// What a session that wants a number finds.
#[derive(Debug)]
pub enum Found {
    Number(i64),
    /// Told when some have come, or why none will.
    None(oneshot::Receiver<Result<()>>),
}

/// Of one sequence.
#[derive(Default)]
struct Held {
    /// What is given from, and what comes after it.
    now: Option<Numbers>,
    next: Option<Numbers>,
    /// Ranges drawn at or below are not good any more.
    since: Position,
    /// Size of the last range that was asked for, and when that was.
    size: u32,
    when: u64,
    asked: bool,
    /// The primary has refused the next one: it is asked for when there is none left.
    refused: bool,
    waiting: Vec<oneshot::Sender<Result<()>>>,
}

/// All ranges of a site.
#[derive(Default)]
pub struct Ranges(Mutex<HashMap<Oid, Held>>);

/// How many a range of this sequence may have.
fn bounds(def: &SequenceDef) -> (u32, u32) {
    let step = u128::from(def.increment.unsigned_abs().max(1));
    let all = (i128::from(def.max) - i128::from(def.min)).unsigned_abs() / step + 1;
    let most = (all / RANGES).clamp(1, u128::from(MOST)) as u32;
    let cache = u32::try_from(def.cache).unwrap_or(u32::MAX);
    let least = LEAST.min(most).max(cache);
    (least, most.max(least))
}

impl Held {
    /// How many to ask for next.
    fn grow(&mut self, def: &SequenceDef, now: u64) -> u32 {
        let (least, most) = bounds(def);
        let size = match now.saturating_sub(self.when) {
            _ if self.size == 0 => least,
            lasted if lasted < SHORT => self.size.saturating_mul(2),
            lasted if lasted > LONG => self.size / 2,
            _ => self.size,
        };
        (self.size, self.when) = (size.clamp(least, most), now);
        self.size
    }
}

impl Ranges {
    /// A number, and how many the primary is to be asked for now: none, if none. `now`: milliseconds of a clock that only grows.
    pub fn take(&self, def: &SequenceDef, now: u64) -> (Found, Option<u32>) {
        let mut all = self.0.lock();
        let held = all.entry(def.id).or_default();
        let spent = held.now.is_none_or(|n| n.count == 0);
        match &mut held.now {
            // What comes behind it is another node's.
            Some(n) if spent && env::fault::planted("site.beyond_its_range") => n.count = 1,
            _ if spent => held.now = held.next.take(),
            _ => {}
        }
        let number = held.now.as_mut().and_then(Numbers::next);
        let left = held.now.map_or(0, |n| n.count);
        let wanted = match number {
            None => true,
            Some(_) if env::fault::planted("site.beyond_its_range") => false,
            // A short range lasts for as long as a question takes, or is all that others may have.
            Some(_) if held.refused || held.size < LEAST => false,
            Some(_) => left <= held.size / 2 && held.next.is_none(),
        };
        let ask = (wanted && !held.asked).then(|| held.grow(def, now));
        held.asked |= ask.is_some();
        let found = match number {
            Some(n) => Found::Number(n),
            None => {
                let (tell, told) = oneshot::channel();
                held.waiting.retain(|w| !w.is_canceled());
                held.waiting.push(tell);
                Found::None(told)
            }
        };
        (found, ask)
    }

    /// The primary's answer to what was asked for.
    pub fn come(&self, sequence: Oid, answer: Result<Numbers>) {
        let mut all = self.0.lock();
        let Some(held) = all.get_mut(&sequence) else {
            return;
        };
        held.asked = false;
        held.refused = answer.is_err();
        let told = match answer {
            Ok(numbers) if numbers.at >= held.since => {
                match held.now {
                    Some(now) if now.count > 0 => held.next = Some(numbers),
                    _ => held.now = Some(numbers),
                }
                Ok(())
            }
            // Those who wait ask again.
            Ok(_) => Ok(()),
            Err(e) => Err(e),
        };
        for waits in held.waiting.drain(..) {
            // Its session may have gone.
            _ = waits.send(told.clone());
        }
    }

    /// The sequence has become another at this position.
    pub fn forget(&self, sequence: Oid, at: Position) {
        if let Some(held) = self.0.lock().get_mut(&sequence) {
            held.since = held.since.max(at);
            for range in [&mut held.now, &mut held.next] {
                *range = range.filter(|r| r.at >= at);
            }
        }
    }

    /// Nothing is drawn any more, since the node gives numbers of its own: what waits asks again.
    pub fn end(&self) {
        for (_, held) in self.0.lock().drain() {
            for waits in held.waiting {
                _ = waits.send(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Error, SqlState};

    fn sequence(max: i64, cache: i64) -> SequenceDef {
        SequenceDef {
            id: 7,
            namespace: 2200,
            name: "s".into(),
            owner: 10,
            type_oid: 20,
            start: 1,
            increment: 1,
            min: 1,
            max,
            cycle: false,
            cache,
            owned_by: None,
            restart: None,
            generation: 0,
            acl: vec![],
        }
    }

    fn numbers(first: i64, count: u32, at: u64) -> Numbers {
        Numbers {
            first,
            increment: 1,
            count,
            at: Position::new(at, 0),
        }
    }

    fn number(found: Found) -> Option<i64> {
        match found {
            Found::Number(n) => Some(n),
            Found::None(_) => None,
        }
    }

    #[test]
    fn a_range_is_asked_for_once_and_the_next_one_before_it_ends() {
        let (r, d) = (Ranges::default(), sequence(i64::MAX, 1));
        let (first, ask) = r.take(&d, 0);
        assert_eq!((number(first), ask), (None, Some(32)));
        let (second, ask) = r.take(&d, 0);
        assert!(ask.is_none(), "it was asked for");
        let Found::None(mut told) = second else {
            panic!("there is none");
        };
        r.come(7, Ok(numbers(1, 32, 5)));
        assert!(matches!(told.try_recv(), Ok(Some(Ok(())))));
        let mut asked = vec![];
        for n in 1..=32 {
            let (found, ask) = r.take(&d, 10);
            assert_eq!(number(found), Some(n));
            asked.extend(ask.map(|a| (n, a)));
            if ask.is_some() {
                r.come(7, Ok(numbers(65, 64, 6)));
            }
        }
        assert_eq!(asked, [(16, 64)], "twice as many, since they went fast");
        assert_eq!(number(r.take(&d, 10).0), Some(65));
    }

    #[test]
    fn sizes_follow_the_rate_and_the_length_of_the_sequence() {
        let mut h = Held::default();
        let d = sequence(i64::MAX, 1);
        let fast: Vec<u32> = (0..7).map(|_| h.grow(&d, 0)).collect();
        assert_eq!(fast, [32, 64, 128, 256, 512, 1024, 1024]);
        assert_eq!(h.grow(&d, 30_000), 1024);
        assert_eq!(h.grow(&d, 100_000), 512);
        assert_eq!(bounds(&sequence(32_767, 1)), (31, 31));
        assert_eq!(bounds(&sequence(10, 1)), (1, 1));
        assert_eq!(bounds(&sequence(10, 5)), (5, 5), "CACHE is asked for");
        assert_eq!(bounds(&sequence(i64::MAX, 5_000)), (5_000, 5_000));
        let all = u32::MAX;
        assert_eq!(bounds(&sequence(i64::MAX, i64::MAX)), (all, all));
    }

    #[test]
    fn what_was_drawn_before_a_change_is_not_given() {
        let (r, d) = (Ranges::default(), sequence(i64::MAX, 1));
        assert!(r.take(&d, 0).1.is_some());
        r.come(7, Ok(numbers(1, 32, 5)));
        assert_eq!(number(r.take(&d, 0).0), Some(1));
        r.forget(7, Position::new(9, 0));
        let (found, ask) = r.take(&d, 0);
        assert!(number(found).is_none() && ask.is_some());
        // It was drawn before the change, and comes after it.
        r.come(7, Ok(numbers(33, 32, 8)));
        let (found, ask) = r.take(&d, 0);
        assert!(number(found).is_none() && ask.is_some());
        r.come(7, Ok(numbers(500, 32, 9)));
        assert_eq!(number(r.take(&d, 0).0), Some(500));
    }

    #[test]
    fn a_refusal_is_told_and_numbers_that_are_here_are_given_all_the_same() {
        let (r, d) = (Ranges::default(), sequence(i64::MAX, 1));
        let limit = Error::new(SqlState::SEQUENCE_LIMIT, "no more");
        r.take(&d, 0);
        r.come(7, Ok(numbers(1, 2, 5)));
        let (one, ask) = r.take(&d, 0);
        assert_eq!((number(one), ask), (Some(1), Some(64)));
        r.come(7, Err(limit.clone()));
        let (two, ask) = r.take(&d, 0);
        assert_eq!((number(two), ask), (Some(2), None), "not asked for each");
        let (none, ask) = r.take(&d, 0);
        assert!(ask.is_some());
        r.come(7, Err(limit));
        let Found::None(mut told) = none else {
            panic!("there is none");
        };
        let told = told.try_recv().unwrap().expect("it was told");
        assert_eq!(told.unwrap_err().code(), SqlState::SEQUENCE_LIMIT);
    }
}
