//! What a function does beside its answer: whether a statement that calls it runs at the primary, and whether it may run again.
//!
//! ```text
//! function                     at_primary  draws  lock  lasting  ties
//! canon_txn_status                 x
//! nextval                                    x                           at the primary or at a site; a second run draws another number
//! setval                           x         x             x
//! pg_notify                        x                       x
//! pg_advisory_lock …               x                x      x       x     of the session
//! pg_advisory_xact_lock …          x                x                    of the transaction
//! pg_promote, pg_cancel_…                                  x             at the node that is asked
//! ```
//! The flags stand in the registry, beside the function ([`Registry::does`](super::registry)). Two ask for them: the walk over a
//! statement's tree (`session::class`), and the scan of a text (`effect`), which is the proxy's.
//!
//! Left out on purpose: settings of a session and what only reads. A volatile function without flags is named by a test.

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// A statement that calls it runs at the primary.
    pub at_primary: bool,
    /// It draws a number, which runs at the primary or at a site. The session may ask for the number later, by `currval` or `lastval`.
    pub draws: bool,
    /// A statement that calls it runs at the primary, also in a transaction that may not write.
    pub lock: bool,
    /// It leaves something behind: a second run is not as good as one.
    pub lasting: bool,
    /// The session holds something at its node afterwards.
    pub ties: bool,
}

pub(super) const NONE: Effect = Effect {
    at_primary: false,
    draws: false,
    lock: false,
    lasting: false,
    ties: false,
};
pub(super) const AT_PRIMARY: Effect = Effect {
    at_primary: true,
    ..NONE
};
pub(super) const DRAWS: Effect = Effect {
    draws: true,
    ..NONE
};
pub(super) const SETS_SEQUENCE: Effect = Effect {
    lasting: true,
    draws: true,
    ..AT_PRIMARY
};
pub(super) const WRITES: Effect = Effect {
    lasting: true,
    ..AT_PRIMARY
};
pub(super) const TRANSACTION_LOCK: Effect = Effect {
    lock: true,
    ..AT_PRIMARY
};
pub(super) const UNLOCK: Effect = Effect {
    lasting: true,
    ..TRANSACTION_LOCK
};
pub(super) const SESSION_LOCK: Effect = Effect {
    ties: true,
    ..UNLOCK
};
pub(super) const OF_THE_NODE: Effect = Effect {
    lasting: true,
    ..NONE
};

impl std::ops::BitOrAssign for Effect {
    fn bitor_assign(&mut self, o: Effect) {
        self.at_primary |= o.at_primary;
        self.draws |= o.draws;
        self.lock |= o.lock;
        self.lasting |= o.lasting;
        self.ties |= o.ties;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Volatility;
    use super::super::registry::{all_functions, effect};
    use super::*;

    /// Volatile functions that answer and do no more, or only to the session.
    const ANSWERS: &[&str] = &[
        "clock_timestamp",
        "currval",
        "gen_random_bytes",
        "gen_random_uuid",
        "gen_salt",
        "lastval",
        "pg_advisory_unlock_all",
        "pg_blocking_pids",
        "pg_current_wal_flush_lsn",
        "pg_current_wal_insert_lsn",
        "pg_current_wal_lsn",
        "pg_is_in_recovery",
        "pg_is_wal_replay_paused",
        "pg_isolation_test_session_is_blocked",
        "pg_last_wal_receive_lsn",
        "pg_last_wal_replay_lsn",
        "pg_last_xact_replay_timestamp",
        "pg_notification_queue_usage",
        "pg_safe_snapshot_blocking_pids",
        "pg_sleep",
        "pg_sleep_for",
        "pg_sleep_until",
        "random",
        "set_config",
        "setseed",
        "timeofday",
        "uuid_generate_v1",
        "uuid_generate_v1mc",
        "uuid_generate_v4",
    ];

    #[test]
    fn every_volatile_function_is_judged() {
        let mut unknown: Vec<&str> = all_functions()
            .filter(|f| f.volatility == Volatility::Volatile && effect(f.name) == NONE)
            .map(|f| f.name)
            .filter(|n| !ANSWERS.contains(n))
            .collect();
        unknown.sort_unstable();
        unknown.dedup();
        assert!(unknown.is_empty(), "{unknown:?}");
        for f in all_functions().filter(|f| f.effect != NONE) {
            assert_eq!(f.volatility, Volatility::Volatile, "{}", f.name);
            assert_eq!(effect(f.name), f.effect, "{}", f.name);
        }
    }

    #[test]
    fn names_are_found_in_any_case_and_of_any_length() {
        assert!(effect("PG_Advisory_Lock").ties);
        for none in ["", "nextvals", "é", &"x".repeat(1000)] {
            assert_eq!(effect(none), NONE);
        }
    }
}
