//! How old what a replica shows is, from ticks that flow also when nothing is committed.
//!
//! Each batch and tick says what was published at its time (`Step::current`). Once that is reached (arrived, on disk, shown) the reader is
//! as new as that time; who is still being sent old log has not reached it, and gets older. So the age is never better than what is known: it grows while nothing is heard, idle or not.
//! Times are microseconds of one clock; whose, the owner says.
//!
//! Left out on purpose: anything that compares the clocks of two machines.

use super::Step;
use base::Position;
use std::collections::VecDeque;

/// Messages remembered. Beyond, every second one is forgotten and only every second of those to come is kept, until all are reached;
/// that can only make the age look greater.
const MOST: usize = 4096;

/// See the head of the file.
#[derive(Debug, Default)]
pub struct Freshness {
    waiting: VecDeque<(Position, i64)>,
    /// One message of 2 to this power is kept; those since the last that was.
    thinned: u32,
    passed: u64,
    newest: Option<i64>,
}

impl Freshness {
    /// A message was made, or came, at this time.
    ///
    /// A primary that has not opened yet does not know what it had published: it names no time, and its message tells nothing here.
    pub fn heard(&mut self, step: &Step, at: i64) {
        if step.sent_micros == 0 {
            return;
        }
        self.told(step.current(), at);
    }

    /// A node that has everything up to `upto` is as new as this time.
    fn told(&mut self, upto: Position, at: i64) {
        self.passed += 1;
        if self.passed < 1 << self.thinned {
            return;
        }
        self.passed = 0;
        if self.waiting.len() >= MOST {
            let mut n = 0;
            self.waiting.retain(|_| {
                n += 1;
                // The oldest stays.
                n % 2 == 1
            });
            self.thinned += 1;
        }
        self.waiting.push_back((upto, at));
    }

    /// Everything up to `position` is reached, as far as messages until `last` are concerned.
    pub fn reached(&mut self, position: Position, last: i64) {
        while let Some(&(upto, at)) = self.waiting.front()
            && upto <= position
            && at <= last
        {
            self.newest = Some(at);
            self.waiting.pop_front();
        }
        if self.waiting.is_empty() {
            (self.thinned, self.passed) = (0, 0);
        }
    }

    /// What is beyond `received` may never come: those are heard from now on who have lost it.
    pub fn forget_beyond(&mut self, received: Position) {
        self.waiting.retain(|(upto, _)| *upto <= received);
    }

    /// Microseconds since the time as of which everything is reached; `None`: nothing was yet.
    pub fn age(&self, now: i64) -> Option<i64> {
        self.newest.map(|at| (now - at).max(0))
    }

    /// The time as of which everything is reached.
    pub fn as_of(&self) -> Option<i64> {
        self.newest
    }
}

/// How long the quickest message is remembered, in microseconds, at least; twice as long at most.
const LEAST: i64 = 600_000_000;

/// Of fewer messages each may have been late.
const ENOUGH: u32 = 8;

/// The least that messages took lately, by the sender's clock and ours: when a message that was sent at some time was here at the earliest, by ours.
///
/// A message that was late, as those are that wait for a process that was stopped, is told apart from one that was quick. The clocks may differ and be set: the time named
/// is too early then, never too late, until the quickest messages of before are forgotten. A delay that all messages have for longer than that is not seen.
#[derive(Debug, Default)]
pub struct Way {
    /// Ours less the sender's, of the present span and of the one before.
    least: [Option<i64>; 2],
    until: i64,
    messages: u32,
}

impl Way {
    /// A message came now that was sent at this time of the sender's clock.
    pub fn took(&mut self, sent: i64, now: i64) {
        if now >= self.until {
            self.least = [None, self.least[0]];
            self.until = now + LEAST;
        }
        self.messages = self.messages.saturating_add(1);
        let took = now - sent;
        self.least[0] = Some(self.least[0].map_or(took, |least| least.min(took)));
    }

    /// When a message that was sent then was here at the earliest, by our clock; none: too few messages have come.
    pub fn earliest(&self, sent: i64) -> Option<i64> {
        let least = self.least.iter().flatten().min();
        let least = least.filter(|_| self.messages >= ENOUGH)?;
        Some(sent + least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_was_late_is_as_old_as_its_sending() {
        let mut way = Way::default();
        // The sender's clock is 900 behind, and the way takes 100 at least.
        for _ in 1..ENOUGH {
            assert_eq!(way.earliest(5), None);
            way.took(0, 1000);
        }
        way.took(500, 1700);
        assert_eq!(way.earliest(500), Some(1500));
        // Read after a stop of 6000.
        way.took(1000, 8000);
        assert_eq!(way.earliest(1000), Some(2000));
    }

    #[test]
    fn a_clock_that_is_set_makes_nothing_newer() {
        let mut way = Way::default();
        (0..ENOUGH).for_each(|_| way.took(0, 1000));
        // Forward: what was sent before looks older, what comes now is as new as it is.
        way.took(5000, 1100);
        assert_eq!(way.earliest(5000), Some(1100));
        assert_eq!(way.earliest(0), Some(-3900));
        // Back: all looks older, until the quickest message is forgotten.
        way.took(200, 1200);
        assert_eq!(way.earliest(200), Some(-3700));
        way.took(LEAST, LEAST + 1000);
        way.took(2 * LEAST, 2 * LEAST + 1000);
        assert_eq!(way.earliest(2 * LEAST), Some(2 * LEAST + 1000));
    }

    fn p(n: u64) -> Position {
        Position::from_u64(n)
    }

    #[test]
    fn the_age_is_that_of_the_newest_message_reached() {
        let mut f = Freshness::default();
        assert_eq!(f.age(5), None);
        f.told(p(1), 100);
        f.told(p(5), 200);
        f.reached(p(4), i64::MAX);
        assert_eq!(f.age(250), Some(150));
        f.reached(p(5), i64::MAX);
        assert_eq!(f.age(250), Some(50));
    }

    #[test]
    fn who_is_silent_gets_older_also_when_nothing_is_committed() {
        let mut f = Freshness::default();
        for t in 0..10 {
            f.told(p(7), t * 10);
        }
        // It answered the third tick; that it has the position says nothing of the later ones.
        f.reached(p(7), 20);
        assert_eq!(f.age(1000), Some(980));
        f.reached(p(7), 90);
        assert_eq!(f.age(1000), Some(910));
    }

    /// A primary had published up to 9 what was never on its disk, and begins again at 5.
    #[test]
    fn what_was_lost_with_the_primary_is_not_waited_for() {
        let mut f = Freshness::default();
        f.told(p(4), 100);
        f.told(p(9), 200);
        f.forget_beyond(p(5));
        f.told(p(5), 300);
        f.reached(p(4), i64::MAX);
        assert_eq!(f.age(350), Some(250), "what has come counts as before");
        f.reached(p(5), i64::MAX);
        assert_eq!(f.age(350), Some(50));
    }

    #[test]
    fn memory_is_bounded_and_the_age_never_better_than_true() {
        let mut f = Freshness::default();
        for t in 0..100_000 {
            f.told(p(t as u64), t);
        }
        assert!(f.waiting.len() <= MOST);
        f.reached(p(50_000), i64::MAX);
        let age = f.age(100_000).unwrap();
        assert!((50_000..51_000).contains(&age), "{age}");
        f.reached(p(100_000), i64::MAX);
        f.told(p(100_001), 100_001);
        f.reached(p(100_001), i64::MAX);
        assert_eq!(f.age(100_001), Some(0));
    }

    /// A replica that was away is sent the log from where it stands, each part of it now.
    #[test]
    fn who_catches_up_is_as_old_as_what_it_shows() {
        use crate::ship::sender::{Command, Event};
        use crate::ship::{Facts, Message, Peer, Sender, VERSION};
        let mut sender = Sender::new(Peer::Member);
        let mut out = Vec::new();
        let terms = vec![(1, Position::ZERO)];
        let hello = Message::Hello {
            version: u16::from(VERSION),
            cluster: 7,
            node: "replica".into(),
            terms: terms.clone(),
            last: p(10),
            ring: 1 << 20,
        };
        let facts = Facts {
            cluster: 7,
            term: 1,
            terms,
            last: p(1000),
            reaches_back_to: p(0),
            lives: Vec::new(),
            deposed: false,
        };
        sender.greet(hello, facts, &mut out);
        sender.publishes(p(1000));
        let mut f = Freshness::default();
        let mut now = 0;
        let mut hear = |sender: &mut Sender, event, f: &mut Freshness| {
            now += 100;
            sender.handle(event, now, &mut out);
            for c in out.drain(..) {
                if let Command::Send(m) = c
                    && let Some(step) = m.step()
                {
                    f.heard(&step, now);
                }
            }
            // All that it was sent is shown at once.
            f.reached(sender.sent(), i64::MAX);
            now
        };
        let read = |from, upto| Event::LogRead {
            from: p(from),
            groups: Vec::new(),
            upto: p(upto),
        };
        hear(&mut sender, Event::Time, &mut f);
        hear(&mut sender, read(10, 500), &mut f);
        let now = hear(&mut sender, Event::Time, &mut f);
        assert_eq!((sender.sent(), f.age(now)), (p(500), None));
        let now = hear(&mut sender, read(500, 1000), &mut f);
        assert_eq!((sender.sent(), f.age(now)), (p(1000), Some(0)));
        // Published, of commits that asked for no disk, and not in the log yet: a tick comes, and is not reached.
        sender.publishes(p(1001));
        hear(&mut sender, Event::Time, &mut f);
        let now = hear(&mut sender, Event::Time, &mut f);
        assert_eq!(f.age(now), Some(200));
    }
}
