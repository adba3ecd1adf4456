//! Files with secrets: the program reads them only where others cannot.
//!
//! ```text
//! the cluster's secret    64 hexadecimal digits    0600
//! a private key           PEM                      0600, or 0640 where root owns it
//! ```
//! Left out on purpose: what a secret is for.

use base::{Error, Result, SqlState};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Longest secret that is read.
const LONGEST: u64 = 1024;

/// 22023.
fn bad(what: String) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
}

/// The text of a file with the cluster's secret; none: there is no such file. 22023 where others may read it.
pub fn read(path: &Path) -> Result<Option<String>> {
    let shown = path.display();
    let failed = |e: std::io::Error| bad(format!("cluster secret file {shown}: {e}"));
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let mode = file.metadata().map_err(failed)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        let what = "may be read by others (its mode is";
        return Err(
            bad(format!("cluster secret file {shown} {what} {mode:04o})"))
                .hint(format!("chmod 600 {shown}")),
        );
    }
    let mut text = String::new();
    match file.take(LONGEST).read_to_string(&mut text) {
        Ok(_) => Ok(Some(text)),
        Err(e) if e.kind() == ErrorKind::InvalidData => Err(none(path)),
        Err(e) => Err(failed(e)),
    }
}

/// 22023: there is no secret in this file.
pub fn none(path: &Path) -> Error {
    let shown = path.display();
    bad(format!(
        "cluster secret file {shown} does not hold 64 hexadecimal digits"
    ))
}

/// 22023 when others than the owner, or the group of a file that root owns, may read or write it.
pub fn must_be_private(path: &Path, holds: &str) -> Result<()> {
    let metadata = std::fs::metadata(path).map_err(|e| bad(e.to_string()))?;
    let open = match metadata.uid() {
        0 => 0o037,
        _ => 0o077,
    };
    let mode = metadata.mode() & 0o777;
    if metadata.is_file() && mode & open != 0 {
        return Err(bad(format!(
            "it holds {holds}, and others may read it (mode {mode:04o}): chmod 0600, or 0640 where root owns it"
        )));
    }
    Ok(())
}
