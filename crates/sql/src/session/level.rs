//! Isolation levels by their names in SQL. READ UNCOMMITTED is READ COMMITTED under another name, which SHOW keeps.

use txn::Isolation;

/// What BEGIN, SET TRANSACTION and the settings name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Level {
    const NAMES: [(Level, &'static str); 4] = [
        (Level::ReadUncommitted, "read uncommitted"),
        (Level::ReadCommitted, "read committed"),
        (Level::RepeatableRead, "repeatable read"),
        (Level::Serializable, "serializable"),
    ];

    /// The level of this name, in any case of letters.
    pub fn named(name: &str) -> Option<Level> {
        let mut all = Level::NAMES.iter();
        let found = all.find(|(_, n)| n.eq_ignore_ascii_case(name));
        found.map(|(level, _)| *level)
    }

    /// The level that the setting has, whose values are checked.
    pub fn of_setting(value: &str) -> Level {
        Level::named(value).expect("a checked value")
    }

    /// As SHOW prints it.
    pub fn name(self) -> &'static str {
        let mut all = Level::NAMES.iter();
        all.find(|(level, _)| *level == self).expect("each").1
    }

    /// What a transaction of this level keeps.
    pub fn isolation(self) -> Isolation {
        match self {
            Level::ReadUncommitted | Level::ReadCommitted => Isolation::ReadCommitted,
            Level::RepeatableRead => Isolation::RepeatableRead,
            Level::Serializable => Isolation::Serializable,
        }
    }

    /// The level of a transaction for which this one was named.
    pub fn of(self, transaction: Isolation) -> Level {
        match transaction {
            same if same == self.isolation() => self,
            Isolation::ReadCommitted => Level::ReadCommitted,
            Isolation::RepeatableRead => Level::RepeatableRead,
            Isolation::Serializable => Level::Serializable,
        }
    }
}
