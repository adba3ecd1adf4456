//! Named fault points: places at which a crash test stops the process, and planted bugs that our own tests must find.
//!
//! Without the feature `faults` everything here is an empty inline function. With it, the environment arms the points:
//!
//! ```text
//! CANON_FAULT   = point[:nth][:abort|:error|:full] [, …]   the nth passage (1 is the first, and the default) of that point
//!                 abort (default): the process ends at once, as under kill -9: no destructor, no flush
//!                 error, full:     the point returns an I/O error, or "no space left"
//!                 while=FILE:      "no space left" at every passage, as long as there is this file
//!                 hangs=FILE:      every passage takes as long as there is this file
//! CANON_PLANTED = name [, …]                                switches that make one check wrong on purpose
//! ```
//! A point is named `room.where`, for example `wal.after_write`. [`point`] stands where nothing can be returned and knows
//! `abort` only; [`fallible`] stands in I/O code.
//!
//! Left out on purpose: probabilities and delays. Random faults belong to the simulator, which owns the dice.

#[cfg(feature = "faults")]
pub use armed::{arm, disarm, plant};

use std::io;

/// A place at which a crash test may end the process.
#[inline(always)]
pub fn point(name: &'static str) {
    #[cfg(feature = "faults")]
    armed::pass(name).unwrap_or(());
    #[cfg(not(feature = "faults"))]
    let _ = name;
}

/// A place at which a crash test may end the process or make the caller's I/O fail.
#[inline(always)]
pub fn fallible(name: &'static str) -> io::Result<()> {
    #[cfg(feature = "faults")]
    return armed::pass(name);
    #[cfg(not(feature = "faults"))]
    {
        let _ = name;
        Ok(())
    }
}

/// Whether the planted fault `name` is switched on. Always false without the feature.
#[inline(always)]
pub fn planted(name: &'static str) -> bool {
    #[cfg(feature = "faults")]
    return armed::is_planted(name);
    #[cfg(not(feature = "faults"))]
    {
        let _ = name;
        false
    }
}

#[cfg(feature = "faults")]
mod armed {
    use parking_lot::Mutex;
    use std::collections::{HashMap, HashSet};
    use std::io;
    use std::path::PathBuf;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[derive(Clone, Debug, PartialEq)]
    enum Action {
        Abort,
        Error,
        Full,
        FullWhile(PathBuf),
        HangsWhile(PathBuf),
    }

    struct Armed {
        /// Passages left until the action; it then stays spent.
        left: u64,
        action: Action,
    }

    struct State {
        points: HashMap<String, Armed>,
        planted: HashSet<String>,
    }

    /// False while nothing was ever armed: the usual passage costs one load.
    static ANY: AtomicBool = AtomicBool::new(false);
    static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
        let list = |name: &str| std::env::var(name).unwrap_or_default();
        let mut state = State {
            points: HashMap::new(),
            planted: HashSet::new(),
        };
        for spec in list("CANON_FAULT").split(',').filter(|s| !s.is_empty()) {
            let (name, armed) =
                parse(spec.trim()).unwrap_or_else(|| panic!("CANON_FAULT: cannot read '{spec}'"));
            state.points.insert(name, armed);
        }
        for name in list("CANON_PLANTED").split(',').filter(|s| !s.is_empty()) {
            state.planted.insert(name.trim().to_owned());
        }
        ANY.store(
            !state.points.is_empty() || !state.planted.is_empty(),
            Ordering::Release,
        );
        Mutex::new(state)
    });

    fn parse(spec: &str) -> Option<(String, Armed)> {
        let mut parts = spec.split(':');
        let name = parts.next().filter(|n| !n.is_empty())?.to_owned();
        let mut armed = Armed {
            left: 1,
            action: Action::Abort,
        };
        for part in parts {
            match part {
                "abort" => armed.action = Action::Abort,
                "error" => armed.action = Action::Error,
                "full" => armed.action = Action::Full,
                file if file.starts_with("while=") => {
                    armed.action = Action::FullWhile(file["while=".len()..].into());
                }
                file if file.starts_with("hangs=") => {
                    armed.action = Action::HangsWhile(file["hangs=".len()..].into());
                }
                nth => armed.left = nth.parse().ok().filter(|n| *n > 0)?,
            }
        }
        Some((name, armed))
    }

    fn anything() -> bool {
        LazyLock::force(&STATE);
        ANY.load(Ordering::Acquire)
    }

    pub(super) fn pass(name: &str) -> io::Result<()> {
        if !anything() {
            return Ok(());
        }
        let mut state = STATE.lock();
        let Some(armed) = state.points.get_mut(name) else {
            return Ok(());
        };
        let full = || Err(io::ErrorKind::StorageFull.into());
        if let Action::FullWhile(file) = &armed.action {
            return if file.exists() { full() } else { Ok(()) };
        }
        if let Action::HangsWhile(file) = &armed.action {
            let file = file.clone();
            drop(state);
            while file.exists() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            return Ok(());
        }
        if armed.left == 0 {
            return Ok(());
        }
        armed.left -= 1;
        if armed.left > 0 {
            return Ok(());
        }
        match &armed.action {
            Action::Abort => {
                crate::say!("fault point {name}: the process ends here");
                std::process::abort()
            }
            Action::Error => Err(io::Error::other(format!("fault point {name}"))),
            Action::Full | Action::FullWhile(_) => full(),
            Action::HangsWhile(_) => Ok(()),
        }
    }

    pub(super) fn is_planted(name: &str) -> bool {
        anything() && STATE.lock().planted.contains(name)
    }

    /// Arms points as `CANON_FAULT` would, from inside the process. Panics on a specification it cannot read.
    pub fn arm(specs: &str) {
        let mut state = STATE.lock();
        for spec in specs.split(',').filter(|s| !s.is_empty()) {
            let (name, armed) =
                parse(spec.trim()).unwrap_or_else(|| panic!("cannot read fault '{spec}'"));
            state.points.insert(name, armed);
        }
        ANY.store(true, Ordering::Release);
    }

    /// Switches a planted fault on or off.
    pub fn plant(name: &str, on: bool) {
        let mut state = STATE.lock();
        if on {
            state.planted.insert(name.to_owned());
        } else {
            state.planted.remove(name);
        }
        ANY.store(true, Ordering::Release);
    }

    /// Disarms every point and every planted fault.
    pub fn disarm() {
        let mut state = STATE.lock();
        state.points.clear();
        state.planted.clear();
        ANY.store(false, Ordering::Release);
    }
}

#[cfg(all(test, feature = "faults"))]
mod tests {
    use super::*;

    #[test]
    fn the_nth_passage_fails_once() {
        arm("t.error:2:error, t.full:full");
        assert!(fallible("t.error").is_ok());
        assert!(fallible("t.error").is_err());
        assert!(fallible("t.error").is_ok());
        assert_eq!(
            fallible("t.full").unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
        assert!(fallible("t.other").is_ok());
        plant("skip", true);
        assert!(planted("skip") && !planted("other"));
        disarm();
        assert!(!planted("skip"));
    }
}

#[cfg(all(test, not(feature = "faults")))]
mod tests {
    #[test]
    fn without_the_feature_nothing_happens() {
        assert!(super::fallible("anything").is_ok());
        assert!(!super::planted("anything"));
    }
}
