//! `/healthz`, `/readyz` and `/metrics`: as much HTTP/1.1 as a probe or a scraper needs.
//!
//! Left out on purpose: bodies of requests, keep-alive, TLS.

use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

/// What is asked of the server.
pub trait Probe: Send + Sync + 'static {
    /// Whether it serves, and reads at most this old; else why not.
    fn ready(&self, max_lag: Option<Duration>) -> Result<(), String>;
    /// All metrics, in Prometheus' text format.
    fn metrics(&self) -> String;
}

const LONGEST: usize = 16 << 10;
const LIMIT: Duration = Duration::from_secs(10);
const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers until the task is dropped.
pub async fn serve<P: Probe>(listener: TcpListener, probe: Arc<P>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let probe = probe.clone();
                tokio::spawn(async move {
                    _ = tokio::time::timeout(LIMIT, answer(stream, &*probe)).await;
                });
            }
            Err(e) => {
                tracing::warn!(error = %e, "could not accept an HTTP connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    mut s: S,
    probe: &impl Probe,
) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|w| w == b"\r\n\r\n") {
        if request.len() > LONGEST || s.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let line = request.split(|&b| b == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line).into_owned();
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (status, kind, body) = match (method, path) {
        ("GET" | "HEAD", "/healthz" | "/livez") => ("200 OK", TEXT, "ok\n".to_owned()),
        ("GET" | "HEAD", "/readyz") => match max_lag(query).map(|lag| probe.ready(lag)) {
            Ok(Ok(())) => ("200 OK", TEXT, "ready\n".to_owned()),
            Ok(Err(why)) => ("503 Service Unavailable", TEXT, format!("{why}\n")),
            Err(why) => ("400 Bad Request", TEXT, format!("{why}\n")),
        },
        ("GET" | "HEAD", "/metrics") => ("200 OK", PROMETHEUS, probe.metrics()),
        ("GET" | "HEAD", _) => ("404 Not Found", TEXT, "not found\n".to_owned()),
        _ => ("405 Method Not Allowed", TEXT, "GET or HEAD\n".to_owned()),
    };
    let mut reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if method != "HEAD" {
        reply.push_str(&body);
    }
    s.write_all(reply.as_bytes()).await?;
    s.shutdown().await
}

/// `max_lag=100ms` among the parameters.
fn max_lag(query: &str) -> Result<Option<Duration>, String> {
    let mut pairs = query.split('&').filter_map(|p| p.split_once('='));
    let Some((_, v)) = pairs.find(|(k, _)| *k == "max_lag") else {
        return Ok(None);
    };
    let time = base::units::duration(v);
    let bad = || format!("max_lag={v}: a time such as 100ms or 2s");
    time.map(Some).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(bool);

    impl Probe for Fixed {
        fn ready(&self, max_lag: Option<Duration>) -> Result<(), String> {
            if max_lag.is_some_and(|l| l < Duration::from_millis(50)) {
                Err("50 ms behind".into())
            } else if self.0 {
                Ok(())
            } else {
                Err("recovering".into())
            }
        }
        fn metrics(&self) -> String {
            "canon_up 1\n".into()
        }
    }

    async fn ask(request: &str, ready: bool) -> String {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        client.write_all(request.as_bytes()).await.unwrap();
        answer(server, &Fixed(ready)).await.unwrap();
        let mut out = String::new();
        client.read_to_string(&mut out).await.unwrap();
        out
    }

    #[tokio::test]
    async fn probes_are_answered() {
        let ok = ask("GET /healthz HTTP/1.1\r\n\r\n", false).await;
        assert!(
            ok.starts_with("HTTP/1.1 200 OK\r\n") && ok.ends_with("ok\n"),
            "{ok}"
        );
        assert!(
            ask("GET /readyz?x=1 HTTP/1.1\r\n\r\n", true)
                .await
                .contains(" 200 ")
        );
        for (lag, status) in [("100ms", " 200 "), ("20ms", " 503 "), ("soon", " 400 ")] {
            let request = format!("GET /readyz?max_lag={lag} HTTP/1.1\r\n\r\n");
            assert!(ask(&request, true).await.contains(status), "{lag}");
        }
        let no = ask("GET /readyz HTTP/1.1\r\n\r\n", false).await;
        assert!(no.contains(" 503 ") && no.ends_with("recovering\n"));
        assert!(
            ask("GET /metrics HTTP/1.1\r\n\r\n", true)
                .await
                .ends_with("canon_up 1\n")
        );
        assert!(
            !ask("HEAD /metrics HTTP/1.1\r\n\r\n", true)
                .await
                .ends_with("canon_up 1\n")
        );
        assert!(
            ask("POST /metrics HTTP/1.1\r\n\r\n", true)
                .await
                .contains(" 405 ")
        );
        assert!(ask("GET /x HTTP/1.1\r\n\r\n", true).await.contains(" 404 "));
    }
}
