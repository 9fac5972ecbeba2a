package main

func printFixtures() {}
