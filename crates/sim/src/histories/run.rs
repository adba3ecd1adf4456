//! Runs histories by their seeds, a batch over one set of nodes.

use base::schema::FkAction;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use workload::rng::Rng;

use crate::histories::bench::Bench;
use crate::histories::history::{Counts, History, IDS};

/// Histories that share their nodes.
pub const BATCH: u64 = 50;

/// What many histories came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report(pub Counts);

/// A history that broke a rule.
#[derive(Debug)]
pub struct Broken {
    pub seed: u64,
    pub why: String,
}

/// One history, after those of its batch that come before, which leave their rows. With a line for each of its events.
pub fn one(seed: u64) -> (Result<Report, Broken>, Vec<String>) {
    let trace = RefCell::new(Vec::new());
    let ran = batch(seed / BATCH, seed % BATCH + 1, Some(&trace));
    (ran, trace.into_inner())
}

/// The histories of a batch, which has the seeds from `number * BATCH` on.
pub fn whole_batch(number: u64) -> Result<Report, Broken> {
    batch(number, BATCH, None)
}

/// The first so many of a batch; `trace` gets the events of the last one.
fn batch(number: u64, many: u64, trace: Option<&RefCell<Vec<String>>>) -> Result<Report, Broken> {
    let mut dice = Rng::new(number);
    let actions = [FkAction::NoAction, FkAction::Cascade, FkAction::Restrict];
    let (sites, on_delete) = (2 + dice.index(2), actions[dice.index(3)]);
    let first = number * BATCH;
    let begun = caught(first, || Bench::new(number, sites, on_delete));
    let (mut bench, mut all) = (begun?, Counts::default());
    for n in 0..many {
        let (seed, base) = (first + n, 1_000 + n as i64 * IDS);
        let trace = trace.filter(|_| n + 1 == many);
        let counts = caught(seed, || {
            let mut history = History::new(&mut bench, seed, base, on_delete, trace);
            history.play();
            history.counts
        });
        all.add(&counts?);
    }
    Ok(Report(all))
}

fn caught<T>(seed: u64, play: impl FnOnce() -> T) -> Result<T, Broken> {
    catch_unwind(AssertUnwindSafe(play)).map_err(|payload| {
        let said = payload.downcast_ref::<String>().cloned();
        let said = said.or_else(|| payload.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        let why = said.unwrap_or_else(|| "a panic without words".into());
        Broken { seed, why }
    })
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "history {}: {}", self.seed, self.why)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.0;
        write!(
            f,
            "{} histories: {} commits at the primary, {} of candidates, {} refused; {} candidates came again, {} were asked for; \
             {} groups too early or twice, {} crashes of sites, {} changes of rights",
            c.histories,
            c.commits[0],
            c.commits[1],
            c.refused,
            c.again,
            c.asked,
            c.gaps,
            c.crashes,
            c.rights
        )
    }
}
