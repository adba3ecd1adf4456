//! How a thread waits for what other threads are about to finish: a commit on its way, a record's lock.
//!
//! Nearly always that is over within a few looks, and looking again is all that is done. Somebody who takes long (a commit of a million
//! rows, a validation of a long report, a thread that has no processor) gets the processor: first by a yield, then by sleeps that grow. Many
//! who only yielded would each take their share of it, and what they wait for would take as many times as long.
//!
//! Left out on purpose: being woken. Those who finish would pay for it each time, to save a few of these looks.

use std::time::Duration;

/// Looks with nothing between them but the processor's own pause.
const SPINS: u32 = 64;
const YIELDS: u32 = 64;
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(1);

/// What to do before the next look.
#[derive(Debug, PartialEq)]
enum Pause {
    Spin,
    Yield,
    Sleep(Duration),
}

/// One wait.
#[derive(Debug, Default)]
pub struct Backoff {
    looks: u32,
}

impl Backoff {
    fn next(&mut self) -> Pause {
        self.looks = self.looks.saturating_add(1);
        match self.looks {
            ..SPINS => Pause::Spin,
            SPINS..=YIELDS_END => Pause::Yield,
            n => {
                let doubled = (n - YIELDS_END - 1).min(16);
                Pause::Sleep((SHORTEST * (1 << doubled)).min(LONGEST))
            }
        }
    }

    /// Before the next look.
    #[inline]
    pub fn pause(&mut self) {
        match self.next() {
            Pause::Spin => std::hint::spin_loop(),
            Pause::Yield => std::thread::yield_now(),
            Pause::Sleep(time) => std::thread::sleep(time),
        }
    }

    /// Whether the next pause would be a sleep: who has a better way to wait takes it now.
    pub fn is_long(&self) -> bool {
        self.looks >= YIELDS_END
    }
}

const YIELDS_END: u32 = SPINS + YIELDS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_lasts_leaves_the_processor_to_others() {
        let mut b = Backoff::default();
        let mut first = Vec::new();
        while !b.is_long() {
            first.push(b.next());
        }
        let spins = first.iter().take_while(|p| **p == Pause::Spin).count();
        assert_eq!(spins, SPINS as usize - 1);
        assert!(first[spins..].iter().all(|p| *p == Pause::Yield));
        let sleeps: Vec<_> = (0..1000).map(|_| b.next()).collect();
        assert_eq!(sleeps[0], Pause::Sleep(SHORTEST));
        assert_eq!(sleeps[1], Pause::Sleep(2 * SHORTEST));
        assert!(sleeps[5..].iter().all(|p| *p == Pause::Sleep(LONGEST)));
        b.looks = u32::MAX;
        assert_eq!(b.next(), Pause::Sleep(LONGEST), "it goes on for ever");
    }
}
