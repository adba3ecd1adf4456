//! A primary and a replica in this process, clients of both, and ways to hold the replica back.

use canon::{Cluster, Options};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

pub const PATIENCE: Duration = Duration::from_secs(60);
pub const SLOW: Duration = Duration::from_millis(5);

/// A primary and a replica, and a runtime for their clients.
pub struct Test {
    pub runtime: tokio::runtime::Runtime,
    pub cluster: Cluster,
    /// A session at the replica, made before anybody is held: its login would wait, too.
    watch: Mutex<Option<(usize, Client)>>,
}

impl Test {
    pub fn start(schema: &str) -> Test {
        Test::start_with(schema, 1)
    }

    pub fn start_with(schema: &str, replicas: usize) -> Test {
        let options = Options {
            log_level: Some("error".into()),
            settings: vec!["default_transaction_isolation=serializable".into()],
            ..Options::default()
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build();
        let t = Test {
            runtime: runtime.expect("a runtime"),
            cluster: Cluster::start(options, replicas).expect("a cluster"),
            watch: Mutex::default(),
        };
        let p = t.primary();
        t.run(&p, schema);
        t.cluster.catch_up().expect("caught up");
        *t.watch.lock().expect("nobody panicked") = Some((t.cluster.replicas()[0], t.replica()));
        t
    }

    pub fn primary(&self) -> Client {
        self.connect(self.cluster.primary(), "")
    }

    pub fn replica(&self) -> Client {
        self.connect(self.cluster.replicas()[0], "")
    }

    pub fn try_connect(&self, member: usize, options: &str) -> Result<Client, String> {
        let mut config: tokio_postgres::Config = self.cluster.url(member).parse().expect("a URL");
        config.options(options);
        self.runtime.block_on(async {
            let (client, connection) = config.connect(NoTls).await.map_err(|e| code(&e))?;
            tokio::spawn(connection);
            Ok(client)
        })
    }

    pub fn connect(&self, member: usize, options: &str) -> Client {
        self.try_connect(member, options).expect("a session")
    }

    pub fn hold(&self, on: bool) {
        let replica = self.cluster.replicas()[0];
        self.cluster.hold_replay(replica, on).expect("a replica");
    }

    pub fn run(&self, c: &Client, sql: &str) {
        self.runtime.block_on(c.batch_execute(sql)).expect(sql);
    }

    /// The first field, by the simple protocol.
    pub fn one(&self, c: &Client, sql: &str) -> String {
        let rows = self.runtime.block_on(c.simple_query(sql)).expect(sql);
        first(&rows).expect(sql)
    }

    pub fn refused(&self, c: &Client, sql: &str) -> String {
        match self.runtime.block_on(c.simple_query(sql)) {
            Ok(r) => panic!("{sql} gave {r:?}"),
            Err(e) => code(&e),
        }
    }

    /// Waits until a session at the replica waits to read something fresh.
    pub fn until_somebody_waits(&self) {
        let replica = self.cluster.replicas()[0];
        let mut watch = self.watch.lock().expect("nobody panicked");
        if watch.as_ref().is_none_or(|w| w.0 != replica) {
            *watch = Some((replica, self.replica()));
        }
        let (_, watch) = watch.as_ref().expect("just made");
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ReadFreshness'";
        let deadline = Instant::now() + PATIENCE;
        while self.one(watch, sql) == "0" {
            assert!(Instant::now() < deadline, "nobody waits");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

pub fn first(rows: &[SimpleQueryMessage]) -> Option<String> {
    rows.iter().find_map(|m| match m {
        SimpleQueryMessage::Row(r) => r.get(0).map(str::to_owned),
        _ => None,
    })
}

pub fn code(e: &tokio_postgres::Error) -> String {
    e.code()
        .map_or_else(|| "connection".into(), |c| c.code().to_owned())
}

pub const TABLES: &str = "CREATE TABLE a (id int PRIMARY KEY, v int NOT NULL);
    INSERT INTO a SELECT i, 0 FROM generate_series(1, 100) i;
    CREATE TABLE b (id int PRIMARY KEY, v int NOT NULL);
    INSERT INTO b SELECT i, 0 FROM generate_series(1, 100) i";
