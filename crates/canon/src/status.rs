//! `canon status`: asks a server's HTTP port.

use env::Env;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

/// What is shown of the metrics: (name, words).
const SHOWN: &[(&str, &str)] = &[
    ("canon_connections", "connections"),
    (
        "canon_transactions_committed_total",
        "transactions committed",
    ),
    (
        "canon_transactions_rolled_back_total",
        "transactions rolled back",
    ),
    ("canon_retries_total", "statements retried by the server"),
    ("canon_memory_bytes", "bytes of rows"),
    ("canon_memory_total_bytes", "bytes of everything else"),
    ("canon_log_bytes_total", "bytes of log written"),
    ("canon_uptime_seconds", "seconds up"),
];

/// Prints how the server is. 0: ready; 1: up but not ready; 2: no answer.
pub fn run(address: &str) -> ExitCode {
    let ready = match get(address, "/readyz") {
        Ok(r) => r,
        Err(e) => {
            eprintln!("canon: no answer from {address}: {e}");
            return ExitCode::from(2);
        }
    };
    println!("{address}: {}", ready.1.trim());
    if let Ok((200, metrics)) = get(address, "/metrics") {
        for (name, words) in SHOWN {
            let line = metrics
                .lines()
                .find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
            if let Some(v) = line {
                println!("{v:>16} {words}");
            }
        }
    }
    if let Ok((200, metrics)) = get(address, "/metrics") {
        print!("{}", cluster(&metrics));
    }
    if ready.0 == 200 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    }
}

/// Draws the node's place in its cluster from its metrics.
fn cluster(metrics: &str) -> String {
    let one = |name: &str| {
        let mut lines = metrics.lines().filter_map(|l| l.strip_prefix(name));
        lines.find_map(|l| l.strip_prefix(' ')).map(str::to_owned)
    };
    // (label, value) of a metric with one label.
    let labelled = |name: &str| -> Vec<(String, String)> {
        let rows = metrics.lines().filter_map(|l| l.strip_prefix(name));
        rows.filter_map(|l| {
            let (label, value) = l.strip_prefix('{')?.split_once("} ")?;
            let label = label.split_once("=\"")?.1.trim_end_matches('"');
            Some((label.to_owned(), value.to_owned()))
        })
        .collect()
    };
    let Some((role, _)) = labelled("canon_role").pop() else {
        return String::new();
    };
    let seconds = |v: Option<&str>| match v.and_then(|v| v.parse::<f64>().ok()) {
        Some(s) if s < 1.0 => format!("{:.0} ms", s * 1e3),
        Some(s) => format!("{s:.1} s"),
        None => "unknown".into(),
    };
    let mut out = match one("canon_term") {
        Some(term) => format!("\n{role}, term {term}\n"),
        None => format!("\n{role}\n"),
    };
    if let Some(commits) = one("canon_set_aside_commits").filter(|n| n != "0") {
        let rows = one("canon_set_aside_rows").unwrap_or_default();
        out += &format!(
            "  {commits} commits of {rows} rows were set aside here: see set-aside in the data directory\n"
        );
    }
    out += &members(metrics, &labelled, &one);
    out += &backups(&labelled, &one, now());
    if let Some(connected) = one("canon_primary_connected") {
        let arrow = if connected == "1" {
            "<──"
        } else {
            "<✗─"
        };
        let lag = seconds(one("canon_replica_lag_seconds").as_deref());
        let epochs = one("canon_replica_lag_epochs").unwrap_or_default();
        let state = match connected.as_str() {
            "1" => "follows its primary",
            _ => "not connected to its primary",
        };
        out += &format!("  {arrow} {state}; shows it as of {lag} ago, {epochs} epochs behind\n");
        out += &reads(&labelled, one("canon_read_fetches_total"));
    }
    let find = |metric: &str, name: &str| {
        let all = labelled(metric);
        all.into_iter().find(|(n, _)| n == name).map(|(_, v)| v)
    };
    for (name, connected) in labelled("canon_replica_connected") {
        if connected != "1" {
            out += &format!("  ─✗> {name:<24} not connected\n");
            continue;
        }
        let s = find("canon_replication_lag_seconds", &name);
        let epochs = find("canon_replication_lag_epochs", &name).unwrap_or_default();
        let lag = seconds(s.as_deref());
        // One block per step of the scale: under 20 ms, 100 ms, 500 ms, 2 s, more.
        let v: f64 = s.and_then(|s| s.parse().ok()).unwrap_or(f64::MAX);
        let steps = [0.02, 0.1, 0.5, 2.0].iter().filter(|t| v > **t).count();
        let bar = "█".repeat(steps + 1);
        out += &format!("  ──> {name:<24} {bar:<5} {lag} behind, {epochs} epochs\n");
    }
    out
}

/// The members of a cluster that runs itself, and what stands in the way of a fail-over.
fn members(
    metrics: &str,
    labelled: &dyn Fn(&str) -> Vec<(String, String)>,
    one: &dyn Fn(&str) -> Option<String>,
) -> String {
    let Some((obstacle, possible)) = labelled("canon_failover").pop() else {
        return String::new();
    };
    let is = |metric: &str, name: &str| {
        let all = labelled(metric);
        all.iter().any(|(n, v)| n == name && v == "1")
    };
    let mut out = String::new();
    for (name, _) in labelled("canon_member_votes") {
        let role = match () {
            () if is("canon_member_primary", &name) => "primary",
            () if is("canon_member_site", &name) => "site",
            () if is("canon_member_copy", &name) => "replica",
            () => "witness",
        };
        let votes = match is("canon_member_votes", &name) {
            true if is("canon_member_decides", &name) => "votes, leads the consensus",
            true => "votes",
            false => "does not vote",
        };
        let at = format!("canon_member_address{{member=\"{name}\",address=\"");
        let at = metrics.lines().find_map(|l| l.strip_prefix(&*at));
        let at = at.and_then(|l| l.split('"').next()).unwrap_or_default();
        let line = format!("  {name:<24} {role:<8} {votes:<26} {at}");
        out += line.trim_end();
        out += "\n";
    }
    let number = |name: &str| one(name).unwrap_or_default();
    out += &format!(
        "  a commit waits for {} replicas; {} hold each one that was acknowledged\n",
        number("canon_cluster_wanted"),
        number("canon_cluster_promised")
    );
    let set = labelled("canon_cluster_setting");
    let set: Vec<String> = set.into_iter().map(|(setting, _)| setting).collect();
    if !set.is_empty() {
        out += &format!("  set for the cluster: {}\n", set.join(", "));
    }
    for (term, lost) in labelled("canon_failover_lost_seconds") {
        out += &format!(
            "  term {term} began without synchronous replicas: acknowledged commits of the {lost} s before it may be lost\n"
        );
    }
    if let Some(left) = one("canon_lease_seconds").and_then(|s| s.parse::<f64>().ok()) {
        out += &format!("  this primary holds its lease for {:.0} ms\n", left * 1e3);
    }
    out += &match possible.as_str() {
        "1" => "  if the primary is lost, another one is named by itself\n".to_owned(),
        _ => format!("  if the primary is lost, none is named by itself: {obstacle}\n"),
    };
    out
}

/// Seconds since 1970.
fn now() -> f64 {
    Env::os().clock.unix_micros() as f64 / 1e6
}

/// What a schedule of backups has done.
fn backups(
    labelled: &dyn Fn(&str) -> Vec<(String, String)>,
    one: &dyn Fn(&str) -> Option<String>,
    now: f64,
) -> String {
    let Some(bases) = one("canon_backup_bases") else {
        return String::new();
    };
    let ago = |name: &str| {
        let seconds = now - one(name)?.parse::<f64>().ok()?;
        Some(match seconds.max(0.0) {
            s if s < 120.0 => format!("{s:.0} s ago"),
            s if s < 7200.0 => format!("{:.0} min ago", s / 60.0),
            s if s < 172_800.0 => format!("{:.1} h ago", s / 3600.0),
            s => format!("{:.1} days ago", s / 86_400.0),
        })
    };
    let mut out = match ago("canon_backup_last_timestamp_seconds") {
        Some(newest) => format!("  backups: {bases} in the archive, the newest of {newest}"),
        None => format!("  backups: {bases} in the archive, none of this term yet"),
    };
    if let Some(since) = ago("canon_backup_since_timestamp_seconds") {
        out += &format!("; a restore goes back to {since}");
    }
    out += "\n";
    if one("canon_backup_under_way").is_some_and(|v| v == "1") {
        let bytes = one("canon_backup_under_way_bytes").and_then(|b| b.parse::<u64>().ok());
        let done = bytes.unwrap_or(0) >> 20;
        out += &format!("  a backup is under way: {done} MB copied and read\n");
    }
    for (why, _) in labelled("canon_backup_failing")
        .into_iter()
        .filter(|f| f.1 == "1")
    {
        out += &format!("  the last backup failed: {why}\n");
    }
    out
}

/// What strong reads at a replica cost, in a line.
fn reads(labelled: &dyn Fn(&str) -> Vec<(String, String)>, fetches: Option<String>) -> String {
    let sum = |name: &str| -> u64 {
        let all = labelled(name);
        all.iter().filter_map(|(_, v)| v.parse::<u64>().ok()).sum()
    };
    let (all, waited) = (
        sum("canon_read_timestamps_total"),
        sum("canon_reads_waited_total"),
    );
    match (all, fetches.and_then(|f| f.parse::<u64>().ok())) {
        (1.., Some(f)) => format!(
            "      {all} strong reads, {} fetches per thousand, {waited} waited for replay\n",
            f * 1000 / all
        ),
        _ => String::new(),
    }
}

/// A GET: status and body.
fn get(address: &str, path: &str) -> std::io::Result<(u16, String)> {
    let bad = |m: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, m.to_owned());
    let to = address
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| bad("no such address"))?;
    let limit = Duration::from_secs(5);
    let mut s = TcpStream::connect_timeout(&to, limit)?;
    s.set_read_timeout(Some(limit))?;
    s.set_write_timeout(Some(limit))?;
    write!(
        s,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut text = String::new();
    s.take(4 << 20).read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| bad("not HTTP"))?;
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok());
    Ok((status.ok_or_else(|| bad("not HTTP"))?, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_drawn_with_what_stands_in_the_way() {
        let metrics = "canon_role{role=\"primary\"} 1\ncanon_term 3\n\
             canon_member_primary{member=\"a\"} 1\ncanon_member_primary{member=\"b\"} 0\n\
             canon_member_votes{member=\"a\"} 1\ncanon_member_votes{member=\"b\"} 0\n\
             canon_member_copy{member=\"a\"} 1\ncanon_member_copy{member=\"b\"} 1\n\
             canon_member_decides{member=\"a\"} 1\n\
             canon_member_votes{member=\"d\"} 0\ncanon_member_copy{member=\"d\"} 1\n\
             canon_member_site{member=\"d\"} 1\n\
             canon_member_address{member=\"d\",address=\"10.9.0.1:5432\"} 1\n\
             canon_cluster_wanted 1\ncanon_cluster_promised 1\ncanon_lease_seconds 1.25\n\
             canon_failover_lost_seconds{term=\"3\"} 1.7\n\
             canon_cluster_setting{setting=\"synchronous_replicas=1\"} 1\n\
             canon_cluster_setting{setting=\"maintenance=on\"} 1\n\
             canon_failover{obstacle=\"only one member votes\"} 0\n";
        let drawn = cluster(metrics);
        for line in [
            "a                        primary  votes, leads the consensus",
            "b                        replica  does not vote\n",
            "d                        site     does not vote              10.9.0.1:5432\n",
            "a commit waits for 1 replicas; 1 hold each",
            "lease for 1250 ms",
            "set for the cluster: synchronous_replicas=1, maintenance=on",
            "term 3 began without synchronous replicas: acknowledged commits of the 1.7 s before it may be lost",
            "none is named by itself: only one member votes",
        ] {
            assert!(drawn.contains(line), "{line}: {drawn}");
        }
    }

    #[test]
    fn backups_are_drawn_with_why_one_failed() {
        let drawn = |metrics: &str| {
            let one = |name: &str| {
                let mut lines = metrics.lines().filter_map(|l| l.strip_prefix(name));
                lines.find_map(|l| l.strip_prefix(' ')).map(str::to_owned)
            };
            let failing = |_: &str| {
                let why = metrics.split_once("why ").map(|w| w.1.to_owned());
                why.map(|w| (w, "1".to_owned())).into_iter().collect()
            };
            backups(&failing, &one, 1_000_000.0)
        };
        assert_eq!(drawn("canon_role 1\n"), "");
        let none = "  backups: 0 in the archive, none of this term yet\n";
        assert_eq!(drawn("canon_backup_bases 0\n"), none);
        let all = "canon_backup_bases 3\ncanon_backup_last_timestamp_seconds 999400.5\n\
             canon_backup_since_timestamp_seconds 740800\ncanon_backup_under_way 1\n\
             canon_backup_under_way_bytes 3145728\nwhy s3://b is away";
        assert_eq!(
            drawn(all),
            "  backups: 3 in the archive, the newest of 10 min ago; a restore goes back to 3.0 days ago\n  \
             a backup is under way: 3 MB copied and read\n  the last backup failed: s3://b is away\n"
        );
    }

    #[test]
    fn a_cluster_is_drawn_and_who_is_away_has_no_lag() {
        let drawn = cluster(
            "canon_role{role=\"primary\"} 1\ncanon_term 3\n\
             canon_replica_connected{replica=\"a\"} 1\ncanon_replica_connected{replica=\"b\"} 0\n\
             canon_replication_lag_epochs{replica=\"a\"} 2\ncanon_replication_lag_seconds{replica=\"a\"} 0.030\n",
        );
        let lines: Vec<&str> = drawn.lines().filter(|l| !l.is_empty()).collect();
        assert_eq!(lines.len(), 3, "{drawn}");
        assert_eq!(lines[0], "primary, term 3");
        assert!(lines[1].contains("a ") && lines[1].contains("30 ms behind, 2 epochs"));
        assert!(lines[2].contains("b ") && lines[2].ends_with("not connected"));
        let drawn = cluster(
            "canon_role{role=\"replica\"} 1\ncanon_term 1\ncanon_primary_connected 0\ncanon_replica_lag_seconds 61.04\n",
        );
        assert!(
            drawn.contains("not connected") && drawn.contains("61.0 s"),
            "{drawn}"
        );
        let drawn = cluster(
            "canon_role{role=\"replica\"} 1\ncanon_term 1\ncanon_primary_connected 1\n\
             canon_read_timestamps_total{how=\"reused\"} 30\ncanon_read_timestamps_total{how=\"fetched\"} 10\n\
             canon_read_fetches_total 12\ncanon_reads_waited_total{level=\"row\"} 3\n",
        );
        let line = "40 strong reads, 300 fetches per thousand, 3 waited for replay";
        assert!(drawn.contains(line), "{drawn}");
    }
}
