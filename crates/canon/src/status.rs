//! `canon status`: asks a server's HTTP port.

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
    if ready.0 == 200 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
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
