//! Replay against the primary, a line per figure: see `bench::replay`. `cargo xtask bench replay` runs this and writes the page.
//!
//! `cargo run --release -p bench --example replay_figures -- --quick`

use bench::replay::{Options, run};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let done =
        Options::parse(std::env::args().skip(1)).and_then(|o| run(&o, &mut std::io::stdout()));
    if let Err(e) = done {
        eprintln!("{e}");
        std::process::exit(1);
    }
}
