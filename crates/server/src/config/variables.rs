//! What the environment says beside the known variables.
//!
//! A variable that is nearly one of ours is a slip of the pen, and a slip is no default: the start is refused. Others are not ours to refuse:
//! Kubernetes tells every container of each service in its namespace by variables such as `CANON_PRIMARY_SERVICE_HOST` and
//! `CANON_PRIMARY_PORT_5432_TCP_ADDR`, and those of a compose file are named after the project. The log says which mean nothing here, but for the
//! services', which nobody wrote.
//!
//! Left out on purpose: values; clap reads those.

use super::table::Overrides;
use base::{Error, Result, SqlState};

/// What begins so is not for `canon start`: the proxy's, those of tests and of their faults.
const OTHERS: [&str; 6] = [
    "CANON_PROXY_",
    "CANON_TEST_",
    "CANON_MOTO",
    "CANON_PG_BIN",
    "CANON_PYTHON",
    "CANON_SYSBENCH",
];

/// The `CANON_*` variables that mean nothing to `canon start`; 22023 for one that is nearly one of its own.
pub fn check_variables(names: impl Iterator<Item = String>) -> Result<Vec<String>> {
    use clap::Args;
    let command = Overrides::augment_args(clap::Command::new("start"));
    let known: Vec<&str> = command
        .get_arguments()
        .filter_map(|a| a.get_env()?.to_str())
        .collect();
    let faults =
        |name: &str| cfg!(feature = "faults") && matches!(name, "CANON_FAULT" | "CANON_PLANTED");
    let names: Vec<String> = names.filter(|n| n.starts_with("CANON")).collect();
    let mut foreign = Vec::new();
    for name in &names {
        if !name.starts_with("CANON_")
            || known.contains(&name.as_str())
            || OTHERS.iter().any(|o| name.starts_with(o))
            || faults(name)
            || of_service(name, &names)
        {
            continue;
        }
        if let Some(meant) = known.iter().find(|k| near(name, k)) {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("unknown variable {name}: is {meant} meant?"),
            )
            .hint(
                "canon start --help names the variables; each key of the configuration file has one.",
            ));
        }
        foreign.push(name.clone());
    }
    foreign.sort();
    Ok(foreign)
}

/// Whether Kubernetes sets it for a service: `*_SERVICE_HOST`, and with that `*_PORT`; `*_SERVICE_PORT`, `*_SERVICE_PORT_NAME`; `*_PORT_5432_TCP`, and
/// of that `_PROTO`, `_PORT` and `_ADDR`.
fn of_service(name: &str, all: &[String]) -> bool {
    let of_port = |rest: &str| {
        let mut parts = rest.split('_');
        let number = parts.next().is_some_and(|n| n.parse::<u16>().is_ok());
        let protocol = matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"));
        let what = matches!(parts.next(), None | Some("PROTO" | "PORT" | "ADDR"));
        number && protocol && what && parts.next().is_none()
    };
    let host = |service: &str| format!("{service}_SERVICE_HOST");
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || (name.strip_suffix("_PORT")).is_some_and(|service| all.contains(&host(service)))
        || name.contains("_SERVICE_PORT_")
        || name
            .match_indices("_PORT_")
            .any(|(at, p)| of_port(&name[at + p.len()..]))
}

/// Whether one is the other but for a letter, or two where it is long: put in, left out or another.
fn near(name: &str, known: &str) -> bool {
    let own = |s: &str| s.trim_start_matches("CANON_").as_bytes().to_vec();
    let (a, b) = (own(name), own(known));
    let most = if b.len() < 8 { 1 } else { 2 };
    // Distances between the beginnings of `a` read so far and all those of `b`.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()] <= most
}
