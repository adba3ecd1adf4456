//! One run of a history through a `Stepper`, with a seed that says who makes which step.

use crate::histories::{Dice, History, World};
use base::Position;
use replica::{Policy, ReplayOptions, SchemaSink, Step, Stepper};

/// Options small enough that everything happens: segments split, tables of last writes overflow, windows close.
pub fn options(policy: Policy, dice: &mut Dice) -> ReplayOptions {
    ReplayOptions {
        policy,
        workers: 1 + dice.below(4) as usize,
        segment_rows: 1 + dice.below(8),
        slice: 1 + dice.below(4) as usize,
        max_rows: 4 + dice.below(60),
        last_writes: [1, 30, 3000][dice.below(3) as usize],
        granules: [2, 64][dice.below(2) as usize],
        ..ReplayOptions::default()
    }
}

/// Runs a random history; checks what is visible whenever that moves. An error says what was seen and under which options.
pub fn run(policy: Policy, seed: u64) -> Result<(), String> {
    let mut dice = Dice::new(seed ^ 0xabcd);
    let history = History::random(seed);
    let options = options(policy, &mut dice);
    let outcome = steps(&history, &options, &mut dice);
    outcome.map_err(|e| format!("seed {seed}, {options:?}: {e}"))
}

pub fn steps(history: &History, options: &ReplayOptions, dice: &mut Dice) -> Result<(), String> {
    let world = World::new(Position::ZERO);
    let sink: std::sync::Arc<dyn SchemaSink> = world.sink.clone();
    let mut replay = Stepper::new(
        world.store.clone(),
        world.marks.clone(),
        sink,
        Position::ZERO,
        options.clone(),
    );
    let mut groups = history.groups.iter();
    let mut next = groups.next();
    let mut seen = Position::ZERO;
    let mut published = Position::ZERO;
    let mut fed = Position::ZERO;
    let mut kept = None;
    let mut now = 0;
    for turn in 0u64.. {
        if turn > 300_000 {
            return Err(format!("it does not come to an end: {:?}", world.marks));
        }
        match dice.below(16) {
            0 if next.is_some() => {
                let (group, upto) = next.take().expect("checked");
                replay.feed(group.clone(), *upto);
                published = published.max(group.header().published);
                fed = *upto;
                next = groups.next();
            }
            1 => {
                let some = dice.below(history.states.len() as u64) as usize;
                published = published.max(history.states[some].0.min(fed));
                replay.tick(fed, published);
            }
            2 | 3 => {
                now += dice.below(20_000_000);
                replay.snapshot(now);
            }
            4 => {
                replay.build().map_err(|e| e.to_string())?;
            }
            5 => drop(world.store.reclaim(world.marks.visible.get())),
            6 if dice.one_in(3) => {
                kept = Some(world.store.snapshots.take(|| world.marks.visible.get()));
            }
            7 if dice.one_in(5) => kept = None,
            _ => {
                let who = dice.below(replay.workers() as u64) as usize;
                replay.step(who).map_err(|e| e.to_string())?;
            }
        }
        let visible = world.marks.visible.get();
        if visible > published {
            return Err(format!("{visible} is shown, {published} is published"));
        }
        if visible < seen {
            return Err(format!("{visible} is shown after {seen}"));
        }
        if visible > seen || dice.one_in(50) {
            let snapshot = world.store.snapshots.take(|| visible);
            world.check(history, snapshot.position())?;
            seen = visible;
        }
        if let Some(old) = &kept
            && dice.one_in(20)
        {
            world.check(history, old.position())?;
        }
        if next.is_none() && published < fed {
            published = history.last.max(fed);
            replay.tick(published, published);
        }
        if next.is_none() && visible >= history.last && replay.is_drained() {
            break;
        }
    }
    if (0..replay.workers()).any(|w| replay.step(w).unwrap_or(Step::Worked) != Step::Idle) {
        return Err("a worker has something to do at the end".into());
    }
    let schemas = world.sink.schemas.lock();
    if !schemas.is_sorted() || !world.sink.sequences.lock().is_sorted() {
        return Err("the schema changed in another order than in the log".into());
    }
    drop(kept);
    world.check_nothing_left_over(history)
}
