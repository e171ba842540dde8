//! A seeded simulation of three replicas and a controller.
