//! Three nodes, each with its volume.

use std::collections::BTreeMap;

use crate::harness::Cluster;
use crate::volume::Volume;

/// The cluster is dropped before the volumes.
#[derive(Debug)]
pub(crate) struct Disks {
    pub(crate) cluster: Cluster,
    volumes: BTreeMap<i32, Volume>,
}

impl Disks {
    /// Everything of a node is on its volume.
    pub(crate) async fn whole(volume: impl Fn(i32) -> Volume, settings: &[(&str, &str)]) -> Self {
        Self::start(volume, settings, &["data.dir"]).await
    }

    /// Only the partition logs are.
    pub(crate) async fn logs(volume: impl Fn(i32) -> Volume, settings: &[(&str, &str)]) -> Self {
        Self::start(volume, settings, &["log.dirs"]).await
    }

    async fn start(
        volume: impl Fn(i32) -> Volume,
        settings: &[(&str, &str)],
        placed: &[&str],
    ) -> Self {
        let volumes: BTreeMap<i32, Volume> = (1..=3).map(|id| (id, volume(id))).collect();
        let places = |id: i32| {
            let place = |key: &&str| {
                ((*key).to_owned(), volumes[&id].path().join("kontiki").display().to_string())
            };
            placed.iter().map(place).collect()
        };
        let cluster = Cluster::start_in(settings, places).await;
        Self { cluster, volumes }
    }

    pub(crate) fn volume(&self, id: i32) -> &Volume {
        &self.volumes[&id]
    }

    pub(crate) fn all_run(&mut self) -> bool {
        let ids = self.cluster.ids();
        ids.into_iter().all(|id| self.cluster.node(id).is_running())
    }

    /// The node that was killed.
    pub(crate) fn down(&mut self) -> i32 {
        let ids = self.cluster.ids();
        ids.into_iter().find(|id| !self.cluster.node(*id).is_up()).expect("one is down")
    }

    /// All machines lose power at once, and start again.
    pub(crate) async fn power_cycle(&mut self) {
        for volume in self.volumes.values() {
            volume.power_off();
        }
        for id in self.cluster.ids() {
            self.cluster.kill(id);
        }
        for volume in self.volumes.values() {
            volume.unmount();
            volume.mount();
        }
        for id in self.cluster.ids() {
            self.cluster.launch(id);
        }
        self.cluster.ready().await;
    }
}

impl Drop for Disks {
    /// Nobody can be killed who waits for a frozen disk.
    fn drop(&mut self) {
        for volume in self.volumes.values() {
            volume.thaw_if_frozen();
        }
    }
}
