//! The settings that exist, with PostgreSQL's names and defaults.

use super::kind::{Kind, Scope, Setting, Unit};
use super::own;

pub(super) const fn s(
    name: &'static str,
    default: &'static str,
    kind: Kind,
    scope: Scope,
    report: bool,
    description: &'static str,
) -> Setting {
    Setting {
        name,
        default,
        kind,
        scope,
        report,
        description,
    }
}

use Kind::{Bool, Enum, Int, Real, Text};
use Scope::{Internal, Postmaster, Superuser, User};
use Unit::{Kilobytes, Milliseconds, None as Plain};

pub(super) const MAX: i64 = i32::MAX as i64;
const ISOLATION: Kind = Enum(&[
    "serializable",
    "repeatable read",
    "read committed",
    "read uncommitted",
]);
const LEVELS: Kind = Enum(&[
    "debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "info", "notice", "warning",
    "error",
]);

/// Those before ours in the order of names.
const BEFORE: &[Setting] = &[
    s(
        "application_name",
        "",
        Text,
        User,
        true,
        "Sets the application name to be reported in statistics and logs.",
    ),
    s(
        "array_nulls",
        "on",
        Bool,
        User,
        false,
        "Enable input of NULL elements in arrays.",
    ),
    s(
        "backslash_quote",
        "safe_encoding",
        Enum(&["safe_encoding", "on", "off"]),
        User,
        false,
        "Sets whether \"\\'\" is allowed in string literals.",
    ),
    s(
        "block_size",
        "8192",
        Int(0, MAX, Plain),
        Internal,
        false,
        "Shows the size of a disk block.",
    ),
    s(
        "bytea_output",
        "hex",
        Enum(&["hex", "escape"]),
        User,
        false,
        "Sets the output format for bytea.",
    ),
];

/// And those after.
const AFTER: &[Setting] = &[
    s(
        "check_function_bodies",
        "on",
        Bool,
        User,
        false,
        "Check routine bodies during CREATE FUNCTION and CREATE PROCEDURE.",
    ),
    s(
        "client_encoding",
        "UTF8",
        Text,
        User,
        true,
        "Sets the client's character set encoding.",
    ),
    s(
        "client_min_messages",
        "notice",
        LEVELS,
        User,
        false,
        "Sets the message levels that are sent to the client.",
    ),
    s(
        "constraint_exclusion",
        "partition",
        Enum(&["partition", "on", "off"]),
        User,
        false,
        "Enables the planner to use constraints to optimize queries.",
    ),
    s(
        "DateStyle",
        "ISO, MDY",
        Text,
        User,
        true,
        "Sets the display format for date and time values.",
    ),
    s(
        "default_table_access_method",
        "heap",
        Text,
        User,
        false,
        "Sets the default table access method for new tables.",
    ),
    s(
        "default_tablespace",
        "",
        Text,
        User,
        false,
        "Sets the default tablespace to create tables and indexes in.",
    ),
    s(
        "default_text_search_config",
        "pg_catalog.simple",
        Text,
        User,
        false,
        "Sets default text search configuration.",
    ),
    s(
        "default_transaction_deferrable",
        "off",
        Bool,
        User,
        false,
        "Sets the default deferrable status of new transactions.",
    ),
    s(
        "default_transaction_isolation",
        "serializable",
        ISOLATION,
        User,
        false,
        "Sets the transaction isolation level of each new transaction.",
    ),
    s(
        "default_transaction_read_only",
        "off",
        Bool,
        User,
        true,
        "Sets the default read-only status of new transactions.",
    ),
    s(
        "effective_cache_size",
        "4GB",
        Int(1, MAX, Kilobytes),
        User,
        false,
        "Sets the planner's assumption about the total size of the data caches.",
    ),
    s(
        "enable_hashjoin",
        "on",
        Bool,
        User,
        false,
        "Enables the planner's use of hash join plans.",
    ),
    s(
        "enable_indexscan",
        "on",
        Bool,
        User,
        false,
        "Enables the planner's use of index-scan plans.",
    ),
    s(
        "enable_mergejoin",
        "on",
        Bool,
        User,
        false,
        "Enables the planner's use of merge join plans.",
    ),
    s(
        "enable_nestloop",
        "on",
        Bool,
        User,
        false,
        "Enables the planner's use of nested-loop join plans.",
    ),
    s(
        "enable_seqscan",
        "on",
        Bool,
        User,
        false,
        "Enables the planner's use of sequential-scan plans.",
    ),
    s(
        "enable_sort",
        "on",
        Bool,
        User,
        false,
        "Enables the planner's use of explicit sort steps.",
    ),
    s(
        "escape_string_warning",
        "on",
        Bool,
        User,
        false,
        "Warn about backslash escapes in ordinary string literals.",
    ),
    s(
        "extra_float_digits",
        "1",
        Int(-15, 3, Plain),
        User,
        false,
        "Sets the number of digits displayed for floating-point values.",
    ),
    s(
        "geqo",
        "on",
        Bool,
        User,
        false,
        "Enables genetic query optimization.",
    ),
    s(
        "idle_in_transaction_session_timeout",
        "0",
        Int(0, MAX, Milliseconds),
        User,
        false,
        "Sets the maximum allowed idle time between queries, when in a transaction.",
    ),
    s(
        "idle_session_timeout",
        "0",
        Int(0, MAX, Milliseconds),
        User,
        false,
        "Sets the maximum allowed idle time between queries, when not in a transaction.",
    ),
    s(
        "in_hot_standby",
        "off",
        Bool,
        Internal,
        true,
        "Shows whether hot standby is currently active.",
    ),
    s(
        "integer_datetimes",
        "on",
        Bool,
        Internal,
        true,
        "Shows whether datetimes are integer based.",
    ),
    s(
        "IntervalStyle",
        "postgres",
        Enum(&["postgres", "postgres_verbose", "sql_standard", "iso_8601"]),
        User,
        true,
        "Sets the display format for interval values.",
    ),
    s(
        "is_superuser",
        "on",
        Bool,
        Internal,
        true,
        "Shows whether the current user is a superuser.",
    ),
    s("jit", "off", Bool, User, false, "Allow JIT compilation."),
    s(
        "lc_collate",
        "C.UTF-8",
        Text,
        Internal,
        false,
        "Shows the collation order locale.",
    ),
    s(
        "lc_ctype",
        "C.UTF-8",
        Text,
        Internal,
        false,
        "Shows the character classification and case conversion locale.",
    ),
    s(
        "lc_messages",
        "C",
        Text,
        User,
        false,
        "Sets the language in which messages are displayed.",
    ),
    s(
        "lc_monetary",
        "C",
        Text,
        User,
        false,
        "Sets the locale for formatting monetary amounts.",
    ),
    s(
        "lc_numeric",
        "C",
        Text,
        User,
        false,
        "Sets the locale for formatting numbers.",
    ),
    s(
        "lc_time",
        "C",
        Text,
        User,
        false,
        "Sets the locale for formatting date and time values.",
    ),
    s(
        "lock_timeout",
        "0",
        Int(0, MAX, Milliseconds),
        User,
        false,
        "Sets the maximum allowed duration of any wait for a lock.",
    ),
    s(
        "log_min_duration_statement",
        "-1",
        Int(-1, MAX, Milliseconds),
        Superuser,
        false,
        "Sets the minimum execution time above which all statements will be logged.",
    ),
    s(
        "log_statement",
        "none",
        Enum(&["none", "ddl", "mod", "all"]),
        Superuser,
        false,
        "Sets the type of statements logged.",
    ),
    s(
        "maintenance_work_mem",
        "64MB",
        Int(1024, MAX, Kilobytes),
        User,
        false,
        "Sets the maximum memory to be used for maintenance operations.",
    ),
    s(
        "max_connections",
        "100",
        Int(1, 262_143, Plain),
        Postmaster,
        false,
        "Sets the maximum number of concurrent connections.",
    ),
    s(
        "max_identifier_length",
        "63",
        Int(0, MAX, Plain),
        Internal,
        false,
        "Shows the maximum identifier length.",
    ),
    s(
        "max_index_keys",
        "32",
        Int(0, MAX, Plain),
        Internal,
        false,
        "Shows the maximum number of index keys.",
    ),
    s(
        "max_parallel_workers_per_gather",
        "0",
        Int(0, 1024, Plain),
        User,
        false,
        "Sets the maximum number of parallel processes per executor node.",
    ),
    s(
        "password_encryption",
        "scram-sha-256",
        Enum(&["scram-sha-256"]),
        User,
        false,
        "Chooses the algorithm for encrypting passwords.",
    ),
    s(
        "plan_cache_mode",
        "auto",
        Enum(&["auto", "force_generic_plan", "force_custom_plan"]),
        User,
        false,
        "Controls the planner's selection of custom or generic plan.",
    ),
    s(
        "quote_all_identifiers",
        "off",
        Bool,
        User,
        false,
        "When generating SQL fragments, quote all identifiers.",
    ),
    s(
        "random_page_cost",
        "4",
        Real(0.0, f64::MAX),
        User,
        false,
        "Sets the planner's estimate of the cost of a nonsequentially fetched disk page.",
    ),
    s("role", "none", Text, User, false, "Sets the current role."),
    s(
        "row_security",
        "on",
        Bool,
        User,
        false,
        "Enable row security.",
    ),
    s(
        "search_path",
        "\"$user\", public",
        Text,
        User,
        false,
        "Sets the schema search order for names that are not schema-qualified.",
    ),
    s(
        "seq_page_cost",
        "1",
        Real(0.0, f64::MAX),
        User,
        false,
        "Sets the planner's estimate of the cost of a sequentially fetched disk page.",
    ),
    s(
        "server_encoding",
        "UTF8",
        Text,
        Internal,
        true,
        "Shows the server (database) character set encoding.",
    ),
    s(
        "server_version",
        super::SERVER_VERSION,
        Text,
        Internal,
        true,
        "Shows the server version.",
    ),
    s(
        "server_version_num",
        "150000",
        Int(0, MAX, Plain),
        Internal,
        false,
        "Shows the server version as an integer.",
    ),
    s(
        "session_authorization",
        "",
        Text,
        User,
        true,
        "Sets the session user name.",
    ),
    s(
        "standard_conforming_strings",
        "on",
        Bool,
        User,
        true,
        "Causes '...' strings to treat backslashes literally.",
    ),
    s(
        "statement_timeout",
        "0",
        Int(0, MAX, Milliseconds),
        User,
        false,
        "Sets the maximum allowed duration of any statement.",
    ),
    s(
        "synchronize_seqscans",
        "on",
        Bool,
        User,
        false,
        "Enable synchronized sequential scans.",
    ),
    s(
        "synchronous_commit",
        "on",
        Enum(&["on", "off", "local", "remote_write", "remote_apply"]),
        User,
        false,
        "Sets the current transaction's synchronization level.",
    ),
    s(
        "tcp_keepalives_idle",
        "0",
        Int(0, MAX, Plain),
        User,
        false,
        "Time between issuing TCP keepalives.",
    ),
    s(
        "temp_tablespaces",
        "",
        Text,
        User,
        false,
        "Sets the tablespace(s) to use for temporary tables and sort files.",
    ),
    s(
        "TimeZone",
        "UTC",
        Text,
        User,
        true,
        "Sets the time zone for displaying and interpreting time stamps.",
    ),
    s(
        "track_activities",
        "on",
        Bool,
        Superuser,
        false,
        "Collects information about executing commands.",
    ),
    s(
        "transaction_deferrable",
        "off",
        Bool,
        User,
        false,
        "Whether to defer a read-only serializable transaction until it can be executed with no possible serialization failures.",
    ),
    s(
        "transaction_isolation",
        "serializable",
        ISOLATION,
        User,
        false,
        "Sets the current transaction's isolation level.",
    ),
    s(
        "transaction_read_only",
        "off",
        Bool,
        User,
        false,
        "Sets the current transaction's read-only status.",
    ),
    s(
        "transform_null_equals",
        "off",
        Bool,
        User,
        false,
        "Treats \"expr=NULL\" as \"expr IS NULL\".",
    ),
    s(
        "work_mem",
        "4MB",
        Int(64, MAX, Kilobytes),
        User,
        false,
        "Sets the maximum memory to be used for query workspaces.",
    ),
    s(
        "xmloption",
        "content",
        Enum(&["content", "document"]),
        User,
        false,
        "Sets whether XML data is a document or a content fragment.",
    ),
];

/// Every setting, sorted by name without regard to case.
pub const SETTINGS: &[Setting] =
    &joined::<{ BEFORE.len() + own::OWN.len() + AFTER.len() }>([BEFORE, own::OWN, AFTER]);

const fn joined<const N: usize>(parts: [&[Setting]; 3]) -> [Setting; N] {
    let mut all = [parts[0][0]; N];
    let (mut part, mut at, mut n) = (0, 0, 0);
    while part < parts.len() {
        while at < parts[part].len() {
            all[n] = parts[part][at];
            (at, n) = (at + 1, n + 1);
        }
        (part, at) = (part + 1, 0);
    }
    all
}

/// The place of a setting in [`SETTINGS`].
pub fn find(name: &str) -> Option<usize> {
    SETTINGS
        .binary_search_by(|s| {
            let a = s.name.bytes().map(|b| b.to_ascii_lowercase());
            a.cmp(name.bytes().map(|b| b.to_ascii_lowercase()))
        })
        .ok()
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
