//! `canon demo --replicas N`: the shop on a primary in this process and replicas in processes of their own.
//!
//! ```text
//! load ──▶ primary ──▶ replica-1 … replica-N       every second: transactions, and each replica's lag as pg_stat_replication has it
//! a third of the time:   the last replica is killed (SIGKILL); it comes back, resumes and catches up
//! two thirds:            replica-1 takes over; clients reconnect; the old primary follows it
//! ```

use super::{Options, Tally, broken, buy, check, done};
use base::{Error, Result};
use parking_lot::Mutex;
use protocol::client::Client;
use server::Server;
use server::config::Config;
use server::replication::Primary;
use server::replication::membership::FILE as SECRET;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::block_in_place;

const PATIENCE: Duration = Duration::from_secs(60);

/// A replica in a process of its own.
struct Replica {
    name: String,
    address: SocketAddr,
    data: PathBuf,
    /// A copy of what its primary has in its directory.
    secret: PathBuf,
    child: Option<Child>,
}

impl Replica {
    fn new(i: u32, data: &Path) -> Result<Replica> {
        let name = format!("replica-{i}");
        Ok(Replica {
            address: server::cluster::free_address()?,
            data: data.with_file_name(format!(
                "{}-{name}",
                data.file_name().unwrap_or_default().to_string_lossy()
            )),
            name,
            secret: data.join(SECRET),
            child: None,
        })
    }

    fn start(&mut self, primary: SocketAddr) -> Result<()> {
        let program = std::env::current_exe().map_err(broken)?;
        let child = Command::new(program)
            .arg("start")
            .args(["--log-level", "error", "--node-name", &self.name])
            .args(["--listen", &self.address.to_string()])
            .args(["--replica-of", &primary.to_string()])
            .arg("--cluster-secret-file")
            .arg(&self.secret)
            .arg("--data")
            .arg(&self.data)
            .stdin(Stdio::null())
            .spawn();
        self.child = Some(child.map_err(broken)?);
        Ok(())
    }

    fn kill(&mut self) {
        if let Some(mut c) = self.child.take() {
            _ = c.kill();
            _ = c.wait();
        }
    }

    /// A connection, once it serves.
    fn connect(&self) -> Result<Client> {
        let until = Instant::now() + PATIENCE;
        loop {
            match Client::connect(self.address) {
                Ok(c) => return Ok(c),
                Err(e) if Instant::now() > until => return Err(broken(e)),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

/// The replicas; they end with it.
struct Replicas(Vec<Replica>);

impl Drop for Replicas {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(Replica::kill);
    }
}

/// Name, epochs behind, milliseconds behind.
type Lag = (String, String, Option<f64>);

fn lags(c: &mut Client) -> Result<Vec<Lag>> {
    let rows = done(c.query(
        "SELECT application_name, div(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn), 16777216),
            extract(epoch FROM replay_lag) * 1000 FROM pg_stat_replication ORDER BY 1",
    ))?;
    let one = |r: Vec<Option<String>>| {
        let mut r = r.into_iter();
        let mut text = || r.next().flatten();
        let (name, epochs) = (text().unwrap_or_default(), text().unwrap_or_default());
        (name, epochs, text().and_then(|t| t.parse().ok()))
    };
    Ok(rows.into_iter().map(one).collect())
}

/// Waits until this many replicas follow who is asked, all of them by less than this.
fn followed(c: &mut Client, by: usize, within_ms: f64) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let all = lags(c)?;
        let near = |l: &Lag| l.2.is_some_and(|ms| ms < within_ms);
        if all.len() >= by && all.iter().all(near) {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(Error::internal(format!("{all:?} after {PATIENCE:?}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What the load and the show share.
struct Shop {
    /// Where writes go.
    primary: Mutex<SocketAddr>,
    stop: AtomicBool,
    count: AtomicU64,
}

/// One client, that connects again when the primary changes.
fn client(shop: &Shop, seed: u64) -> Tally {
    let mut tally = Tally::default();
    let mut round = 0;
    while !shop.stop.load(Ordering::Relaxed) {
        let address = *shop.primary.lock();
        round += 1;
        if buy(
            address,
            seed + round * 1000,
            &shop.stop,
            &shop.count,
            &mut tally,
        )
        .is_err()
        {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    tally
}

/// Runs the demonstration on a primary that serves.
pub async fn run(o: &Options, config: &Config, server: Server, data: &Path) -> Result<()> {
    let first = server.listening[0];
    let mut replicas = Replicas(Vec::new());
    for i in 1..=o.replicas {
        replicas.0.push(Replica::new(i, data)?);
    }
    let mut servers = vec![server];
    let shown = show(o, config, &mut servers, &mut replicas, first).await;
    if shown.is_ok() && !o.exit {
        println!("\nThe shop is open. Writes and reads, and reads only:\n");
        println!(
            "    psql -h {} -p {} -U canon canon",
            first.ip(),
            replicas.0[0].address.port()
        );
        let others = replicas.0[1..].iter().map(|r| r.address);
        for a in others.chain([first]) {
            println!("    psql -h {} -p {} -U canon canon", a.ip(), a.port());
        }
        println!("\nCtrl-C ends it.");
        service::stop_signal().await?;
        println!();
    }
    for s in servers {
        s.stop().await;
    }
    let directories: Vec<_> = replicas.0.iter().map(|r| r.data.clone()).collect();
    drop(replicas);
    if o.data.is_none() {
        for d in directories {
            _ = std::fs::remove_dir_all(d);
        }
    }
    shown
}

async fn show(
    o: &Options,
    config: &Config,
    servers: &mut Vec<Server>,
    replicas: &mut Replicas,
    first: SocketAddr,
) -> Result<()> {
    println!("Canon {} on {first}", env!("CARGO_PKG_VERSION"));
    let mut c = block_in_place(|| Client::connect(first)).map_err(broken)?;
    block_in_place(|| super::shop::open(&mut c))?;
    for r in &mut replicas.0 {
        r.start(first)?;
    }
    let began = Instant::now();
    block_in_place(|| followed(&mut c, o.replicas as usize, 1000.0))?;
    println!(
        "{} copied the database and follow after {:.1} s.\n",
        names(replicas),
        began.elapsed().as_secs_f64()
    );
    let shop = Shop {
        primary: Mutex::new(first),
        stop: AtomicBool::new(false),
        count: AtomicU64::new(0),
    };
    let seconds = o.seconds.max(6);
    let clients = std::thread::scope(|s| {
        let handles: Vec<_> = (0..o.clients)
            .map(|i| {
                let shop = &shop;
                s.spawn(move || client(shop, u64::from(i) + 1))
            })
            .collect();
        let acted = tokio::task::block_in_place(|| {
            let handle = tokio::runtime::Handle::current();
            handle.block_on(act(config, servers, replicas, &shop, seconds, first))
        });
        shop.stop.store(true, Ordering::SeqCst);
        let tallies: Vec<Tally> = handles
            .into_iter()
            .map(|h| h.join().expect("a client thread"))
            .collect();
        acted.map(|()| tallies)
    })?;
    let mut all = Tally::default();
    clients.into_iter().for_each(|t| all.add(t));
    all.print(seconds as f64, o.clients);
    println!();
    block_in_place(|| {
        let mut c = replicas.0[0].connect()?;
        check(&mut c)?;
        followed(&mut c, o.replicas as usize, 1000.0)?;
        let token = done(c.query("SHOW canon.commit_token"))?;
        let token = token[0][0].clone().unwrap_or_default();
        let at = token.rsplit(':').next().unwrap_or_default();
        let addresses = replicas.0[1..].iter().map(|r| (r.name.as_str(), r.address));
        for (name, address) in addresses.chain([("the old primary", first)]) {
            let mut c = Client::connect(address).map_err(broken)?;
            done(c.query(&format!(
                "SET statement_timeout = '60s'; SET canon.min_token = '{token}'"
            )))?;
            print!("On {name}, as of {at}: ");
            check(&mut c)?;
        }
        Ok(())
    })
}

fn names(r: &Replicas) -> String {
    let names: Vec<_> = r.0.iter().map(|r| r.name.as_str()).collect();
    names.join(", ")
}

/// The acts of the show, while the load runs.
async fn act(
    config: &Config,
    servers: &mut Vec<Server>,
    replicas: &mut Replicas,
    shop: &Shop,
    seconds: u64,
    first: SocketAddr,
) -> Result<()> {
    let mut watch = Client::connect(first).map_err(broken)?;
    let last = replicas.0.len() - 1;
    let mut before = 0;
    for second in 1..=seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let n = shop.count.load(Ordering::Relaxed);
        let mut line = format!("{second:>4} s {:>8} per second", n - before);
        before = n;
        let now = lags(&mut watch)?;
        let known = replicas.0.iter().map(|r| r.name.clone());
        let new = now.iter().map(|l| l.0.clone());
        let mut every: Vec<String> = known.chain(new).collect();
        every.sort();
        every.dedup();
        for name in every
            .iter()
            .filter(|n| *shop.primary.lock() == first || **n != replicas.0[0].name)
        {
            line += &match now.iter().find(|l| l.0 == *name) {
                Some((_, epochs, Some(ms))) => {
                    format!("   {name}: {ms:.0} ms, {epochs} epochs")
                }
                Some(_) => format!("   {name}: catching up"),
                None => format!("   {name}: not connected"),
            };
        }
        println!("{line}");
        if second == (seconds / 3).max(1) {
            println!("       {} is killed.", replicas.0[last].name);
            replicas.0[last].kill();
        }
        if second == (seconds / 2).max(2) {
            println!("       {} starts again.", replicas.0[last].name);
            replicas.0[last].start(*shop.primary.lock())?;
        }
        if second == (seconds * 2 / 3).max(3) {
            let began = Instant::now();
            followed(&mut watch, replicas.0.len(), 1000.0)?;
            println!(
                "       {} caught up. {} takes over.",
                replicas.0[last].name, replicas.0[0].name
            );
            let heir = &replicas.0[0];
            let waited = began.elapsed();
            let mut c = heir.connect()?;
            let report = done(c.query("SELECT canon_promote()"))?;
            *shop.primary.lock() = heir.address;
            watch = heir.connect()?;
            println!(
                "       {} ({:.0} ms)",
                report[0][0].as_deref().unwrap_or(""),
                (began.elapsed() - waited).as_secs_f64() * 1e3
            );
            let heir = heir.address;
            // The others follow the new primary.
            for server in std::mem::take(servers) {
                server.stop().await;
            }
            let mut config = config.clone();
            config.listen = vec![first];
            config.replica_of = Some(Primary::parse(&heir.to_string()).expect("an address"));
            config.node_name = "old-primary".into();
            servers.push(Server::start(&config).await?);
            for r in &mut replicas.0[1..] {
                r.kill();
                r.start(heir)?;
            }
        }
    }
    Ok(())
}
