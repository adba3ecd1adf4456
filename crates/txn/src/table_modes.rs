//! PostgreSQL's eight modes of locks on tables, as sets, and what keeps off what.

/// A set of modes of a lock on a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TableModes(u8);

impl TableModes {
    pub const ACCESS_SHARE: TableModes = TableModes(1);
    pub const ROW_SHARE: TableModes = TableModes(1 << 1);
    pub const ROW_EXCLUSIVE: TableModes = TableModes(1 << 2);
    pub const SHARE_UPDATE_EXCLUSIVE: TableModes = TableModes(1 << 3);
    pub const SHARE: TableModes = TableModes(1 << 4);
    pub const SHARE_ROW_EXCLUSIVE: TableModes = TableModes(1 << 5);
    pub const EXCLUSIVE: TableModes = TableModes(1 << 6);
    pub const ACCESS_EXCLUSIVE: TableModes = TableModes(1 << 7);

    /// What each mode keeps off, the weakest mode first.
    const AGAINST: [u8; 8] = [0x80, 0xc0, 0xf0, 0xf8, 0xec, 0xfc, 0xfe, 0xff];

    /// Both.
    pub fn with(self, other: TableModes) -> TableModes {
        TableModes(self.0 | other.0)
    }

    /// Whether all of `other` are among these.
    pub fn has(self, other: TableModes) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether two holders may not have these at once.
    pub fn conflicts(self, other: TableModes) -> bool {
        let against = (0..8usize).filter(|i| self.0 & (1u8 << i) != 0);
        against.fold(0, |all, i| all | Self::AGAINST[i]) & other.0 != 0
    }

    /// Whether one of them keeps off what statements take by themselves.
    pub fn is_strong(self) -> bool {
        self.0 & 0xf0 != 0
    }

    /// PostgreSQL's names of the modes, the weakest first.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [&str; 8] = [
            "AccessShareLock",
            "RowShareLock",
            "RowExclusiveLock",
            "ShareUpdateExclusiveLock",
            "ShareLock",
            "ShareRowExclusiveLock",
            "ExclusiveLock",
            "AccessExclusiveLock",
        ];
        (0..8)
            .filter(move |i| self.0 & (1 << i) != 0)
            .map(|i| NAMES[i])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_keep_off_what_they_do_in_postgresql() {
        // The modes from the weakest to the strongest, and those that each keeps off.
        let against = [
            "7", "67", "4567", "34567", "23567", "234567", "1234567", "01234567",
        ];
        for (i, off) in against.iter().enumerate() {
            let mine = TableModes(1 << i);
            for j in 0..8 {
                let other = TableModes(1 << j);
                assert_eq!(
                    mine.conflicts(other),
                    off.contains(&j.to_string()),
                    "{i} {j}"
                );
                assert_eq!(mine.conflicts(other), other.conflicts(mine), "{i} {j}");
            }
        }
        let both = TableModes::SHARE.with(TableModes::ROW_EXCLUSIVE);
        assert!(both.conflicts(TableModes::SHARE) && both.has(TableModes::SHARE));
        assert!(!both.conflicts(TableModes::ROW_SHARE));
    }
}
