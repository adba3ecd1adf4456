//! Whether two servers lead at once, by what each of them says of itself.
//!
//! ```text
//! server 0   |leads|             |leads|      each | | is one answer, from its question to its end
//! server 1            |leads|                 between two of server 0: both led
//! ```
//! A server leads while it is a primary and holds its lease (`canon_lease_seconds` above 0): only then it shows and acknowledges by its own word. Each server is
//! asked all the time. It led between two answers that follow each other if both say so; a whole answer of another one in between that says the same is a second
//! primary. Times are of this process's clock alone.
//!
//! Left out on purpose: two that lead for less than the time between two answers. Commits that such a pair acknowledges would be found lost at the end.

use crate::bench::http;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A server that says nothing for so long is left by its client.
pub const SILENCE: Duration = Duration::from_millis(700);

/// What a primary says of itself.
pub const LEADS: &str = "canon_role{role=\"primary\"} 1";

/// Between two questions.
const LOOK: Duration = Duration::from_millis(50);

/// One answer.
#[derive(Clone, Copy)]
struct Answer<T> {
    asked: T,
    came: T,
    leads: bool,
}

/// Asks the servers until it is ended.
pub struct Watch {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Answer<Instant>>>>,
}

impl Watch {
    /// Of the servers with these HTTP ports.
    pub fn start(ports: Vec<u16>) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = ports.into_iter().map(|http| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut answers = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    let asked = Instant::now();
                    let metrics = http::metrics(http, SILENCE);
                    if !metrics.is_empty() {
                        answers.push(Answer {
                            asked,
                            came: Instant::now(),
                            leads: leads(&metrics),
                        });
                    }
                    std::thread::sleep(LOOK);
                }
                answers
            })
        });
        Watch {
            threads: threads.collect(),
            stop,
        }
    }

    /// Whether two led at once.
    pub fn end(self) -> bool {
        self.stop.store(true, Ordering::SeqCst);
        let all = self.threads.into_iter();
        let all: Vec<_> = all.map(|t| t.join().expect("it asks")).collect();
        two_at_once(&all)
    }
}

fn leads(metrics: &str) -> bool {
    let left = http::value(metrics, "canon_lease_seconds").unwrap_or(0.0);
    metrics.contains(LEADS) && left > 0.0
}

fn two_at_once<T: Ord + Copy>(all: &[Vec<Answer<T>>]) -> bool {
    let led = |of: &[Answer<T>], from: T, to: T| {
        of.iter()
            .any(|a| a.leads && from <= a.asked && a.came <= to)
    };
    all.iter().enumerate().any(|(i, one)| {
        one.windows(2).any(|pair| {
            let both = pair[0].leads && pair[1].leads;
            let mut others = all.iter().enumerate().filter(|(j, _)| *j != i);
            both && others.any(|(_, other)| led(other, pair[0].came, pair[1].asked))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(all: &[(u32, u32, bool)]) -> Vec<Answer<u32>> {
        all.iter()
            .map(|&(asked, came, leads)| Answer { asked, came, leads })
            .collect()
    }

    #[test]
    fn one_that_leads_between_two_answers_of_another_is_a_second_one() {
        let one = answers(&[(0, 1, true), (8, 9, true)]);
        assert!(two_at_once(&[one.clone(), answers(&[(3, 4, true)])]));
        assert!(!two_at_once(&[one.clone(), answers(&[(3, 4, false)])]));
        // It may have been before, or after.
        assert!(!two_at_once(&[one, answers(&[(0, 4, true), (5, 9, true)])]));
    }

    #[test]
    fn a_change_of_the_primary_is_none() {
        let old = answers(&[(0, 1, true), (8, 9, false)]);
        assert!(!two_at_once(&[old, answers(&[(3, 4, true), (5, 6, true)])]));
    }

    #[test]
    fn a_primary_without_its_lease_does_not_lead() {
        let role = LEADS;
        assert!(leads(&format!("{role}\ncanon_lease_seconds 1.2\n")));
        assert!(!leads(&format!("{role}\ncanon_lease_seconds 0\n")));
        assert!(!leads(&format!("{role}\n")));
        assert!(!leads("canon_lease_seconds 1.2\n"));
    }
}
