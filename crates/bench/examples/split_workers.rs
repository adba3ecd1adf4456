//! How fast the worker of split values follows its load, a line per figure: see `bench::split_workers`. `cargo xtask bench split-workers` runs
//! this and writes the page.
//!
//! `cargo run -p bench --example split_workers`

fn main() -> base::Result<()> {
    bench::split_workers::run(&mut std::io::stdout())
}
