//! What is known of a replica's connection and of its primary: for people, for metrics, and for the report of a forced promotion.
//!
//! One thing here decides: [`Seen::lacks`], by which a copy testifies where a fail-over may lose commits. A clock that is set makes it say too much, never too little. A
//! wrong clock makes the other ages here wrong, and no more.

use base::Position;
use replica::ship::{Freshness, Step, Way};
use std::collections::VecDeque;

/// Between two samples of the primary's pace: microseconds.
const SAMPLE: i64 = 1_000_000;
/// Samples kept.
const SAMPLES: usize = 10;

/// See the head of the file.
#[derive(Default)]
pub struct Seen {
    pub connected: bool,
    /// `connecting`, `streaming`, `stopped`, `promoted`.
    pub status: &'static str,
    /// Where the present connection's stream began.
    pub began: Position,
    /// Our clock at the last message, microseconds since 1970.
    pub heard: Option<i64>,
    /// The primary has said that it has everything up to here.
    pub claimed: Position,
    /// Streams that have begun since the start, and whether the primary has said over the last of them what it has.
    pub streams: u64,
    pub told: bool,
    /// Commits that had come, and when, about once a second for the last ten.
    pace: VecDeque<(i64, u64)>,
    /// By our clock: when what is shown was heard of. By the primary's: when it was sent.
    age: Freshness,
    sent: Freshness,
    /// By the primary's clock: when what is on the disk here was sent. Of the primary of that term.
    held: Freshness,
    term: u64,
    way: Way,
}

impl Seen {
    /// A message came. `commits`: so many had come before it. `awake`: microseconds of a clock that is never set.
    pub(super) fn hears(
        &mut self,
        step: Option<Step>,
        now: i64,
        awake: i64,
        commits: impl Fn() -> u64,
    ) {
        self.heard = Some(now);
        let Some(step) = step else { return };
        self.claimed = self.claimed.max(step.current());
        self.told = true;
        let last = self.pace.back().map_or(0, |p| p.0);
        if now - last >= SAMPLE {
            self.pace.push_back((now, commits()));
            if self.pace.len() > SAMPLES {
                self.pace.pop_front();
            }
        }
        self.age.heard(&step, now);
        self.sent.heard(&step, step.sent_micros);
        if step.sent_micros != 0 {
            self.way.took(step.sent_micros, awake);
            if step.term != self.term {
                // A primary that was replaced goes on to say what it has published, and its replica may hear the next one late.
                (self.held, self.term) = (Freshness::default(), step.term);
            }
            self.held.heard(&step, step.sent_micros);
        }
    }

    /// The log flows from here on.
    pub(super) fn streams(&mut self, from: Position) {
        (self.connected, self.status) = (true, "streaming");
        // A primary that began again may have lost what it had published, and its disk had not.
        (self.began, self.claimed) = (from, from);
        self.streams += 1;
        self.told = false;
        self.age.forget_beyond(from);
        self.sent.forget_beyond(from);
        self.held.forget_beyond(from);
    }

    pub(super) fn is_away(&mut self, status: &'static str) {
        (self.connected, self.status) = (false, status);
    }

    /// Everything up to here is shown.
    pub fn shows(&mut self, visible: Position) {
        self.age.reached(visible, i64::MAX);
        self.sent.reached(visible, i64::MAX);
    }

    /// How old what is shown is, in microseconds, by our own clock: since we heard of it.
    pub fn age(&self, now: i64) -> Option<i64> {
        self.age.age(now)
    }

    /// The primary's time as of which everything is shown, microseconds since 1970.
    pub fn as_of(&self) -> Option<i64> {
        self.sent.as_of()
    }

    /// A node with all up to here on its disk may lack what its primary has published in so many microseconds; none: nothing is known.
    pub fn lacks(&mut self, persisted: Position, awake: i64) -> Option<i64> {
        self.held.reached(persisted, i64::MAX);
        let here = self.way.earliest(self.held.as_of()?)?;
        Some((awake - here).max(0))
    }

    /// Commits per second of the primary, and the seconds over which they were counted.
    pub(super) fn rate(&self) -> Option<(f64, f64)> {
        let (first, last) = (self.pace.front()?, self.pace.back()?);
        let seconds = (last.0 - first.0) as f64 / 1e6;
        (seconds > 0.0).then(|| ((last.1 - first.1) as f64 / seconds, seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A replica has heard a replaced primary for long, and the next one for a moment: what it lacks of that one is not known before it has what that one said.
    #[test]
    fn what_an_older_primary_said_is_no_word_of_the_next_one() {
        let mut seen = Seen::default();
        let p = |n| Position::new(1, n);
        let step = |term, upto, sent_micros| Step {
            term,
            stream: 0,
            after: Position::ZERO,
            upto: p(upto),
            published: p(upto),
            sent_micros,
        };
        seen.streams(Position::ZERO);
        for n in 1..20 {
            seen.hears(Some(step(1, 5, n * 1000)), 0, n * 1000, || 0);
        }
        assert_eq!(seen.lacks(p(5), 20_000), Some(1000));
        seen.streams(p(5));
        seen.hears(Some(step(2, 9, 20_000)), 0, 20_000, || 0);
        assert_eq!(seen.lacks(p(5), 20_000), None);
        assert_eq!(seen.lacks(p(9), 20_000), Some(0));
    }
}
