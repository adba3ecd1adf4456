//! `sim --seeds N [--from M]` runs seeds and reports; `sim --seed N` shows one, a line per event; `--plant NAME` makes a bug; `--sites`: replicas
//! are sites; `--leases`: they hold read leases; `--control`: clusters that name their primary by themselves, with openraft. `sim --histories N [--from M]` runs small histories of sites, `sim --history N` shows one.

use std::fmt::Display;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = args.iter().position(|a| a == name)?;
        args.get(at + 1).cloned()
    };
    let number = |name: &str| value(name).and_then(|v| v.parse::<u64>().ok());
    #[cfg(feature = "faults")]
    if let Some(fault) = value("--plant") {
        env::fault::plant(&fault, true);
    }
    // What failed is in the report; a backtrace for each seed would drown it.
    std::panic::set_hook(Box::new(|_| {}));
    if let Some(seed) = number("--history") {
        return show_history(seed);
    }
    if let Some(count) = number("--histories") {
        return histories(number("--from").unwrap_or(0), count);
    }
    let says = |name: &str| args.iter().any(|a| a == name);
    let seeds = Seeds {
        one: number("--seed"),
        from: number("--from").unwrap_or(1),
        count: number("--seeds").unwrap_or(100),
    };
    match (says("--control"), says("--sites"), says("--leases")) {
        (true, ..) => seeds.run(" --control", sim::control::run, |all, one| all.add(one)),
        (_, true, _) => seeds.run(" --sites", sim::run_sites, |all, one| all.add(one)),
        (.., true) => seeds.run(" --leases", sim::run_leases, |all, one| all.add(one)),
        _ => seeds.run("", sim::run, |all, one| all.add(one)),
    }
}

/// One seed that is shown, or some.
struct Seeds {
    one: Option<u64>,
    from: u64,
    count: u64,
}

impl Seeds {
    /// `how`: the option that makes such a run again.
    fn run<R: Default + Display + Send>(
        &self,
        how: &str,
        run: fn(u64, bool) -> Result<R, String>,
        add: fn(&mut R, &R),
    ) -> ExitCode {
        if let Some(seed) = self.one {
            return match run(seed, true) {
                Ok(report) => {
                    println!("{report}");
                    ExitCode::SUCCESS
                }
                Err(why) => {
                    println!("FAILED {why}");
                    ExitCode::FAILURE
                }
            };
        }
        // Each cluster has one thread; several clusters run side by side.
        let (next, done) = (AtomicU64::new(self.from), Mutex::new((0, R::default())));
        let end = self.from + self.count;
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::SeqCst);
                        if seed >= end {
                            return;
                        }
                        let ran = run(seed, false);
                        let (failed, all) = &mut *done.lock().unwrap_or_else(|e| e.into_inner());
                        match ran {
                            Ok(report) => add(all, &report),
                            Err(why) => {
                                *failed += 1;
                                println!(
                                    "FAILED {why}\nagain: cargo xtask sim{how} --seed {seed}\n"
                                );
                            }
                        }
                    }
                });
            }
        });
        let (failed, all) = done.into_inner().unwrap_or_else(|e| e.into_inner());
        println!("{all}");
        println!("{} seeds passed, {failed} failed", self.count - failed);
        ExitCode::from(u8::from(failed > 0))
    }
}

/// One small history, a line per event.
fn show_history(seed: u64) -> ExitCode {
    let (ran, trace) = sim::histories::run::one(seed);
    trace.iter().for_each(|line| println!("{line}"));
    match ran {
        Ok(_) => ExitCode::SUCCESS,
        Err(broken) => {
            println!("FAILED {broken}");
            ExitCode::FAILURE
        }
    }
}

/// At least so many small histories, in whole batches.
fn histories(from: u64, count: u64) -> ExitCode {
    use sim::histories::run::{BATCH, Report, whole_batch};
    let (next, done) = (
        AtomicU64::new(from / BATCH),
        Mutex::new((0, Report::default())),
    );
    let end = (from + count).div_ceil(BATCH);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= end {
                        return;
                    }
                    let ran = whole_batch(number);
                    let (failed, all) = &mut *done.lock().unwrap_or_else(|e| e.into_inner());
                    match ran {
                        Ok(report) => all.0.add(&report.0),
                        Err(broken) => {
                            *failed += 1;
                            let seed = broken.seed;
                            println!("FAILED {broken}\nagain: cargo xtask sim --history {seed}\n");
                        }
                    }
                }
            });
        }
    });
    let (failed, all) = done.into_inner().unwrap_or_else(|e| e.into_inner());
    let rate = all.0.histories as f64 / begun.elapsed().as_secs_f64();
    println!("{all}\n{rate:.0} histories a second, {failed} batches failed");
    ExitCode::from(u8::from(failed > 0))
}
