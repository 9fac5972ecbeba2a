//! The table of who holds what, as one ConfigMap that changes by compare and swap.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde::{Deserialize, Serialize};

use super::super::lease::{Failed, within};
use super::super::plan::{Epoch, Holder, Table};
use super::super::rendezvous::{SLOTS, Slot};

const KEY: &str = "table";

/// The table as it was read.
pub(super) struct Read {
    pub(super) table: Table,
    object: ConfigMap,
}

pub(super) struct Tables {
    api: Api<ConfigMap>,
    name: String,
    limit: Duration,
}

/// How the table is written: replicas by their place in a list, since a few hold a thousand slots.
#[derive(Serialize, Deserialize)]
struct Written {
    replicas: Vec<String>,
    /// For each slot its holder's place, if anybody holds it, and its epoch.
    slots: Vec<(Option<usize>, Epoch)>,
}

impl Tables {
    pub(super) fn new(client: kube::Client, namespace: &str, name: &str, limit: Duration) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            limit,
        }
    }

    pub(super) fn api(&self) -> Api<ConfigMap> {
        self.api.clone()
    }

    pub(super) async fn get(&self) -> Result<Read, Failed> {
        let found = within(self.limit, self.api.get_opt(&self.name)).await?;
        let object = found.unwrap_or_else(|| {
            let mut object = ConfigMap::default();
            object.metadata.name = Some(self.name.clone());
            object
        });
        let text = object.data.as_ref().and_then(|data| data.get(KEY));
        let table = match text.map(|text| read(text)) {
            None => Table::new(),
            Some(Some(table)) => table,
            Some(None) => {
                // Nobody can hold anything by it: all see the same, and let go. Claims write it anew.
                tracing::warn!(table = self.name, "the table cannot be read and is begun anew");
                Table::new()
            }
        };
        Ok(Read { table, object })
    }

    /// Writes the table, if nobody else has since it was read.
    pub(super) async fn put(&self, read: Read, table: &Table) -> Result<(), Failed> {
        let mut object = read.object;
        object.data = Some(BTreeMap::from([(KEY.to_owned(), write(table))]));
        let params = PostParams::default();
        let done = if object.metadata.resource_version.is_some() {
            within(self.limit, self.api.replace(&self.name, &params, &object)).await
        } else {
            within(self.limit, self.api.create(&params, &object)).await
        };
        done.map(drop)
    }
}

fn write(table: &Table) -> String {
    let mut replicas: Vec<String> = table.values().map(|holder| holder.replica.clone()).collect();
    replicas.retain(|replica| !replica.is_empty());
    replicas.sort();
    replicas.dedup();
    let slots = (0..SLOTS).map(|slot| match table.get(&slot) {
        Some(holder) => (replicas.binary_search(&holder.replica).ok(), holder.epoch),
        None => (None, 0),
    });
    let slots = slots.collect();
    serde_json::to_string(&Written { replicas, slots }).expect("names and numbers are JSON")
}

fn read(text: &str) -> Option<Table> {
    let written: Written = serde_json::from_str(text).ok()?;
    if written.slots.len() != usize::from(SLOTS) {
        return None;
    }
    let mut table = Table::new();
    for (slot, (place, epoch)) in written.slots.into_iter().enumerate() {
        let replica = match place {
            Some(place) => written.replicas.get(place)?.clone(),
            None => String::new(),
        };
        if epoch > 0 {
            table.insert(Slot::try_from(slot).ok()?, Holder { replica, epoch });
        }
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_it_was_written_and_what_is_broken_is_none() {
        let holder = |replica: &str, epoch: Epoch| Holder {
            replica: replica.to_owned(),
            epoch,
        };
        let table = Table::from([(0, holder("a", 1)), (7, holder("", 3)), (SLOTS - 1, holder("b", 2))]);
        let text = write(&table);
        assert!(text.len() < 64 * 1024, "{} bytes", text.len());
        assert_eq!(read(&text), Some(table));
        assert_eq!(read("{}"), None);
        assert_eq!(read(r#"{"replicas":[],"slots":[[0,1]]}"#), None);
    }
}
