//! `canon copy`: a copy of a data directory, also while a server works there.
//!
//! `wal::copy` makes the copy, in the one order in which it is good; then it is read whole, as by `canon verify`. The copy is for a
//! start in the place of this node. Beside its cluster it must be started as a replica.
//!
//! Left out on purpose: copies over the network (a replica is one) and of the archive (it is files that are written once).

use crate::verify::failed;
use base::Result;
use env::Env;
use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// From where to where.
#[derive(clap::Args)]
pub struct CopyOptions {
    /// The data directory; a server may be at work there
    #[arg(long, value_name = "DIR", env = "CANON_DATA")]
    data: PathBuf,
    /// Where the copy is made: absent, or an empty folder
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Do not read the copy whole afterwards
    #[arg(long)]
    no_verify: bool,
}

/// Copies, and verifies. Whether the copy is whole.
pub fn run(p: &CopyOptions) -> Result<bool> {
    let (done, shown) = (Cell::new(0u64), Cell::new(Instant::now()));
    let progress = |n: u64| {
        done.set(done.get() + n);
        if shown.get().elapsed() >= Duration::from_secs(1) {
            shown.set(Instant::now());
            eprintln!("copying: {} MB", done.get() >> 20);
        }
    };
    let copied = wal::copy::copy_dir(&Env::os().disk, &p.data, &p.to, &progress).map_err(failed)?;
    println!(
        "{} bytes of checkpoint and {} segments of log, up to position {}",
        copied.bytes, copied.segments, copied.last
    );
    if p.no_verify {
        return Ok(true);
    }
    crate::verify::look(&p.to)
}
