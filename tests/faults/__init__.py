"""What happens when processes are killed, disks are full or damaged, and clocks jump: whole commands over whole homes, in processes."""
