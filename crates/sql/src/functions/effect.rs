//! What a function does beside its answer: whether a statement that calls it runs at the primary, and whether it may run again.
//!
//! ```text
//! function                     at_primary  lock  lasting  ties
//! nextval                          x                             a second run draws another number
//! setval, pg_notify                x               x
//! pg_advisory_lock …               x        x      x       x     of the session
//! pg_advisory_xact_lock …          x        x                    of the transaction
//! pg_promote, pg_cancel_…                          x             at the node that is asked
//! ```
//! Everything that judges a statement before it runs asks here: a replica that forwards, and the proxy after a lost answer.
//!
//! Left out on purpose: settings of a session and what only reads. A volatile function without a line here is named by a test.

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// A statement that calls it runs at the primary.
    pub at_primary: bool,
    /// The same in a transaction that may not write.
    pub lock: bool,
    /// It leaves something behind: a second run is not as good as one.
    pub lasting: bool,
    /// The session holds something at its node afterwards.
    pub ties: bool,
}

const NONE: Effect = Effect {
    at_primary: false,
    lock: false,
    lasting: false,
    ties: false,
};
const DRAWS: Effect = Effect {
    at_primary: true,
    ..NONE
};
const WRITES: Effect = Effect {
    lasting: true,
    ..DRAWS
};
const TRANSACTION_LOCK: Effect = Effect {
    lock: true,
    ..DRAWS
};
const UNLOCK: Effect = Effect {
    lasting: true,
    ..TRANSACTION_LOCK
};
const SESSION_LOCK: Effect = Effect {
    ties: true,
    ..UNLOCK
};
const OF_THE_NODE: Effect = Effect {
    lasting: true,
    ..NONE
};

/// The functions that do more than answer.
const EFFECTS: &[(&str, Effect)] = &[
    ("nextval", DRAWS),
    (super::NEXT_IDENTITY, DRAWS),
    ("canon_txn_status", DRAWS),
    ("setval", WRITES),
    ("pg_notify", WRITES),
    ("pg_advisory_lock", SESSION_LOCK),
    ("pg_advisory_lock_shared", SESSION_LOCK),
    ("pg_try_advisory_lock", SESSION_LOCK),
    ("pg_try_advisory_lock_shared", SESSION_LOCK),
    ("pg_advisory_xact_lock", TRANSACTION_LOCK),
    ("pg_advisory_xact_lock_shared", TRANSACTION_LOCK),
    ("pg_try_advisory_xact_lock", TRANSACTION_LOCK),
    ("pg_try_advisory_xact_lock_shared", TRANSACTION_LOCK),
    ("pg_advisory_unlock", UNLOCK),
    ("pg_advisory_unlock_shared", UNLOCK),
    ("pg_promote", OF_THE_NODE),
    ("canon_promote", OF_THE_NODE),
    ("canon_unseal", OF_THE_NODE),
    ("pg_terminate_backend", OF_THE_NODE),
    ("pg_cancel_backend", OF_THE_NODE),
];

/// What the function of this name does, in any case of letters.
pub fn effect(name: &str) -> Effect {
    let found = EFFECTS.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
    found.map_or(NONE, |(_, e)| *e)
}

/// What the functions do together that stand in this text. A name without a call counts, too.
pub fn effect_of_text(text: &str) -> Effect {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let mut all = NONE;
    for word in text.split(|c| !part(c)) {
        let e = effect(word);
        all.at_primary |= e.at_primary;
        all.lock |= e.lock;
        all.lasting |= e.lasting;
        all.ties |= e.ties;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::Volatility;
    use super::super::registry::all_functions;
    use super::*;

    /// Volatile functions that answer and do no more, or only to the session.
    const ANSWERS: &[&str] = &[
        "clock_timestamp",
        "currval",
        "gen_random_uuid",
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
        for (name, _) in EFFECTS {
            let volatile =
                |f: &&super::super::signature::Entry| f.volatility == Volatility::Volatile;
            let known = super::super::registry::functions(name);
            assert!(known.iter().any(|f| volatile(&f)), "{name}");
        }
    }

    #[test]
    fn words_are_taken_whole() {
        assert!(effect_of_text("SELECT PG_CATALOG.\"nextval\"('s')").at_primary);
        assert!(effect_of_text("select pg_advisory_lock(1)").ties);
        assert_eq!(
            effect_of_text("SELECT pg_advisory_unlock_all(), nextvals"),
            NONE
        );
    }
}
