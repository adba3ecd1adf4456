//! Range scans.

use base::KeyRange;

/// Which order a scan follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The rows themselves, in primary-key (or row-id) order.
    Primary,
    /// A secondary index, by its place in `TableDef::indexes`.
    Index(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

/// A resumable position in a range scan; holds no reference into the store.
pub struct Scan {
    pub(crate) access: Access,
    pub(crate) range: KeyRange,
    pub(crate) direction: Direction,
}

impl Scan {
    /// A scan of the keys of `range` (encoded keys of the index: `base::key`).
    pub fn new(access: Access, range: KeyRange, direction: Direction) -> Scan {
        Scan {
            access,
            range,
            direction,
        }
    }
}
