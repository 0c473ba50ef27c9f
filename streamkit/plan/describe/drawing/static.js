rows("topics", TOPOLOGY.topics.map(each => row(each.name, each.use)));
showStores(null);
