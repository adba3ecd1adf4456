//! tokio-postgres: types in binary, prepared statements, pipelining, COPY, portals, cancel, notifications.

use futures_util::{pin_mut, SinkExt, StreamExt, TryStreamExt};
use tokio_postgres::binary_copy::{BinaryCopyInWriter, BinaryCopyOutStream};
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, IsolationLevel, NoTls};

#[tokio::main]
async fn main() {
    let port = std::env::args().nth(1).unwrap();
    let place = format!("host=127.0.0.1 port={port} user=canon dbname=canon");
    let (mut c, mut connection) = tokio_postgres::connect(&place, NoTls).await.unwrap();
    let (heard, mut news) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut messages = futures_util::stream::poll_fn(move |cx| connection.poll_message(cx));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(n) = message {
                _ = heard.send(n.payload().to_owned());
            }
        }
    });
    let made = "CREATE TYPE mood AS ENUM ('sad', 'glad');
        CREATE TABLE tp (id int PRIMARY KEY, v text, a int[], j jsonb, u uuid, m mood)";
    c.batch_execute(made).await.unwrap();
    let insert = "INSERT INTO tp (id, v, a, j, u) VALUES ($1, $2, $3, $4, $5)";
    let insert = c.prepare(insert).await.unwrap();
    let (j, u) = (serde_json::json!({"a": [1]}), uuid::Uuid::from_u128(7));
    c.execute(&insert, &[&1, &"x", &vec![1, 2], &j, &u]).await.unwrap();
    let row = c.query_one("SELECT * FROM tp", &[]).await.unwrap();
    assert_eq!(row.get::<_, Vec<i32>>("a"), [1, 2]);
    assert_eq!(row.get::<_, serde_json::Value>("j"), j);
    assert_eq!(row.get::<_, uuid::Uuid>("u"), u);
    assert_eq!(row.columns()[5].type_().name(), "mood");

    let sink = c.copy_in("COPY tp (id, v) FROM STDIN (FORMAT binary)").await.unwrap();
    let writer = BinaryCopyInWriter::new(sink, &[Type::INT4, Type::TEXT]);
    pin_mut!(writer);
    for id in 2..500 {
        writer.as_mut().write(&[&id, &"copied"]).await.unwrap();
    }
    assert_eq!(writer.finish().await.unwrap(), 498);
    let out = c.copy_out("COPY tp (id, v) TO STDOUT (FORMAT binary)").await.unwrap();
    let rows: Vec<_> = BinaryCopyOutStream::new(out, &[Type::INT4, Type::TEXT]).try_collect().await.unwrap();
    assert_eq!(rows.len(), 499);
    let sink = c.copy_in::<_, &[u8]>("COPY tp (id) FROM STDIN").await.unwrap();
    pin_mut!(sink);
    sink.send(&b"1000\n"[..]).await.unwrap();
    assert_eq!(sink.as_mut().finish().await.unwrap(), 1);

    let count = c.prepare("SELECT count(*) FROM tp WHERE id >= $1").await.unwrap();
    let asked = (0..20).map(|_| c.query_one(&count, &[&500]));
    for row in futures_util::future::join_all(asked).await {
        assert_eq!(row.unwrap().get::<_, i64>(0), 1);
    }
    let t = c.build_transaction().isolation_level(IsolationLevel::Serializable).start().await.unwrap();
    let portal = t.bind("SELECT id FROM tp ORDER BY id", &[]).await.unwrap();
    assert_eq!(t.query_portal(&portal, 10).await.unwrap().len(), 10);
    assert_eq!(t.query_portal(&portal, 0).await.unwrap().len(), 490);
    t.rollback().await.unwrap();

    let cancel = c.cancel_token();
    let (slept, _) = tokio::join!(c.batch_execute("SELECT pg_sleep(100)"), async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        cancel.cancel_query(NoTls).await.unwrap();
    });
    assert_eq!(slept.unwrap_err().code().unwrap().code(), "57014");
    c.batch_execute("LISTEN news; NOTIFY news, 'hello'").await.unwrap();
    assert_eq!(news.recv().await.unwrap(), "hello");
}
