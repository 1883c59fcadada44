module elasticdl.org/obedient

go 1.24
